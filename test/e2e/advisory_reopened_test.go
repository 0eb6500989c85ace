package e2e_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// reopenedYAML is an advisory file of a distribution. Its vulnerability was fixed once and then detected again.
const reopenedYAML = `package:
  name: lines
advisories:
  - id: CGA-2222-3333-4444
    aliases: [CVE-2024-3001]
    events:
      - {timestamp: 2024-05-01T08:00:00Z, type: detection, data: {type: manual}}
      - {timestamp: 2024-05-02T08:00:00Z, type: fixed, data: {fixed-version: 1.0.0-r1}}
`

// TestApiReopened imports an advisory whose vulnerability is fixed, and then a newer version in which it is not.
// Every output format must reflect the change.
func TestApiReopened(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		org := string(w.Organization)
		file := reopenedYAML
		steps := []struct {
			more                     string // lines that are added to the file
			affected, osv, vex, secs string // text that the answer in each format must contain
		}{
			{"", `[]`, `{"fixed":"1.0.0-r1"}`, `"status":"fixed"}]}`, `{"1.0.0-r1":["CVE-2024-3001 CGA-2222-3333-4444"]}`},
			{"{timestamp: 2024-05-03T08:00:00Z, type: detection, data: {type: manual}}", `"advisoryId":"CGA-2222-3333-4444"`,
				`"events":[{"introduced":"0"}]`, `"status":"under_investigation"}]}`, `"packages":[]`},
			{"{timestamp: 2024-05-04T08:00:00Z, type: fixed, data: {fixed-version: 1.2.0-r0}}", `"fixedVersions":["1.2.0-r0"]`,
				`{"fixed":"1.2.0-r0"}`, `"status":"fixed"}]}`, `{"1.2.0-r0":["CVE-2024-3001 CGA-2222-3333-4444"]}`},
			{"{timestamp: 2024-05-05T08:00:00Z, type: fix-not-planned, data: {note: No.}}", `"advisoryId":"CGA-2222-3333-4444"`,
				`"events":[{"introduced":"0"}]`, `"status":"affected","action_statement":"No."}]}`, `"packages":[]`},
		}
		for i, step := range steps {
			if step.more != "" {
				file += "      - " + step.more + "\n"
			}
			last, st := w.takeIn(t, w.Token, org, doc("lines.yaml", len(file)), []byte(file))
			if st != nil || last.GetCounts().GetFailed() > 0 {
				t.Fatalf("step %d: %v %v", i, last, st)
			}
			get := func(what, method, path, body string, want string) {
				t.Helper()
				r := w.send(t, w.Token, method, path, body)
				if r.status != http.StatusOK || !strings.Contains(r.body, want) {
					t.Errorf("step %d: %s: %d %s, want %s", i, what, r.status, r.body, want)
				}
			}
			list := w.send(t, w.Token, "GET", "/vulnerabilities/v2beta1/advisories?advisory_ids=CGA-2222-3333-4444", "").body
			uid := regexp.MustCompile(`"uid":"([^"]+)"`).FindStringSubmatch(list)[1]
			get("get", "GET", "/vulnerabilities/v2beta1/advisories/"+uid, "", step.osv)
			get("query", "POST", "/vulnerabilities/v2beta1/advisories:query",
				`{"package":{"purl":"pkg:apk/wolfi/lines@1.1.0-r0"},"uidp":{"descendantsOf":"`+org+`"}}`, step.affected)
			within := "&uidp.descendants_of=" + url.QueryEscape(org)
			get("osv", "GET", "/advisories/v1/export?format=osv"+within, "", step.osv)
			get("openvex", "GET", "/advisories/v1/export?format=openvex"+within, "", step.vex)
			get("secdb", "GET", "/advisories/v1/secdb/"+org+"/security.json", "", step.secs)
		}
	})
}
