#!/bin/sh
# report.sh STATE_DIR: what the night did, kept as STATE_DIR/reports/DATE.txt and mailed to MAIL_TO.
# systemd says how the batch ended (SERVICE_RESULT, EXIT_STATUS); the audit says what it left.
set -u
state=$1
heavylift=${HEAVYLIFT:-/usr/local/bin/heavylift}
report=$state/reports/$(date +%Y-%m-%d).txt
mkdir -p "$state/reports"

{
  echo "ended:  ${SERVICE_RESULT:-unknown}, exit status ${EXIT_STATUS:-unknown}"
  "$heavylift" batch status "$state/batch"
  echo
  "$heavylift" batch audit "$state/batch"
} >"$report.part" 2>&1
audit=$?

# 8: rows are left for the next night, which is no fault.
case $audit in
  0) verdict='everything is accounted for' ;;
  8) verdict='rows are left, the next night goes on' ;;
  *) verdict="LOOK AT IT: audit $audit" ;;
esac
{ echo "$verdict"; cat "$report.part"; } >"$report"
rm "$report.part"

if [ -n "${MAIL_TO:-}" ]; then
  ${SENDMAIL:-/usr/sbin/sendmail} -t <<END
To: $MAIL_TO
Subject: nightly batch: $verdict
Content-Type: text/plain; charset=utf-8

$(cat "$report")
END
fi
case $audit in 0 | 8) exit 0 ;; *) exit 1 ;; esac
