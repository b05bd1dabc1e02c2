#!/bin/sh
# report.sh STATE_DIR: what the night did, kept as STATE_DIR/reports/DATE.txt and mailed to MAIL_TO.
# systemd says how the batch ended (SERVICE_RESULT, EXIT_STATUS); status and audit say what it left.
# Exit status: 0 unless somebody has to look at it.
set -u
state=$1
heavylift=${HEAVYLIFT:-/usr/local/bin/heavylift}
report=$state/reports/$(date +%Y-%m-%d).txt
mkdir -p "$state/reports"

standing=$("$heavylift" batch status "$state/batch" 2>&1)
left=$?
audit=$("$heavylift" batch audit "$state/batch" 2>&1)
sound=$?

# 8: rows are left for the next night, which is no fault; until then they are missing in the audit.
case $left,$sound in
  *,0) verdict='everything is accounted for' ;;
  8,1) verdict='rows are left, the next night goes on' ;;
  *) verdict="LOOK AT IT (status $left, audit $sound)" ;;
esac
cat >"$report" <<END
$verdict
batch ended: ${SERVICE_RESULT:-unknown}, exit status ${EXIT_STATUS:-unknown}

$standing

$audit
END

if [ -n "${MAIL_TO:-}" ]; then
  "${SENDMAIL:-/usr/sbin/sendmail}" -t <<END
To: $MAIL_TO
Subject: nightly batch: $verdict
Content-Type: text/plain; charset=utf-8

$(cat "$report")
END
fi
case $verdict in LOOK*) exit 1 ;; esac
