#!/bin/sh
# A nightly scan of many repositories with one state: each night looks at what is new, and the report has all of it.
#
#   0 2 * * *  scanner  REPOSITORIES=/srv/git STATE=/var/lib/strandline REPORTS=/var/www/secrets nightly.sh
#
# An interrupted night goes on with the next one. The exit code is 1 if a finding is open.
set -eu

: "${REPOSITORIES:?a folder of git repositories}" "${STATE:?a folder for results}" "${REPORTS:?a folder for reports}"
code=0
for repository in "$REPOSITORIES"/*; do
  [ -d "$repository" ] || continue
  strandline scan --git "$repository" --state "$STATE" --source-name "$(basename "$repository")" --quiet >/dev/null || code=1
done
strandline findings export --state "$STATE" --format html --output "$REPORTS/secrets.html"
strandline findings export --state "$STATE" --format sarif --output "$REPORTS/secrets.sarif"
exit $code
