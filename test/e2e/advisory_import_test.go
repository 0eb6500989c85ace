package e2e_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// osv returns the i-th OSV record, as a public database would publish it. Records below number 10 have no fix.
func osv(i int) string {
	events := `{"introduced":"0"},{"fixed":"1.` + fmt.Sprint(i) + `.0"}`
	if i < 10 {
		events = `{"introduced":"0"}`
	}
	return fmt.Sprintf(`{"schema_version":"1.6.0","id":"T-%05d","modified":"2026-01-02T03:04:05Z",`+
		`"published":"2026-01-01T00:00:00Z","aliases":["CVE-2026-%d"],"summary":"Record %d",`+
		`"affected":[{"package":{"ecosystem":"npm","name":"p%d"},"ranges":[{"type":"SEMVER","events":[%s]}]}]}`,
		i, i, i, i%50, events)
}

// osvZip returns a zip archive with the records from number from to number to-1.
func osvZip(t *testing.T, from, to int) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := from; i < to; i++ {
		// Without compression, which is slow under the race detector.
		f, err := z.CreateHeader(&zip.FileHeader{Name: fmt.Sprintf("T-%05d.json", i), Method: zip.Store})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, osv(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func part(p any) *advisoriespb.ImportAdvisoriesRequest {
	switch p := p.(type) {
	case string:
		return &advisoriespb.ImportAdvisoriesRequest{Part: &advisoriespb.ImportAdvisoriesRequest_Parent{Parent: p}}
	case []byte:
		return &advisoriespb.ImportAdvisoriesRequest{Part: &advisoriespb.ImportAdvisoriesRequest_Data{Data: p}}
	case *advisoriespb.ImportAdvisoriesRequest_Document:
		return &advisoriespb.ImportAdvisoriesRequest{Part: &advisoriespb.ImportAdvisoriesRequest_Document_{Document: p}}
	}
	return &advisoriespb.ImportAdvisoriesRequest{}
}

func doc(name string, size int) *advisoriespb.ImportAdvisoriesRequest_Document {
	return &advisoriespb.ImportAdvisoriesRequest_Document{Name: name, Size: int64(size)}
}

// takeIn sends the parts of an import. It returns the final status and the last response. To that response it adds
// the problems in all earlier responses.
func (w *world) takeIn(
	t *testing.T, bearer string, parts ...any,
) (last *advisoriespb.ImportAdvisoriesResponse, _ *status.Status) {
	t.Helper()
	stream, err := advisoriespb.NewAdvisoryWritingServiceClient(w.conn).ImportAdvisories(bearing(t, bearer))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		if err := stream.Send(part(p)); err != nil {
			break // the response contains the reason
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	last = &advisoriespb.ImportAdvisoriesResponse{}
	var problems []*advisoriespb.ImportProblem
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			last.Problems = problems
			return last, nil
		}
		if err != nil {
			return last, status.Convert(err)
		}
		last, problems = m, append(problems, m.GetProblems()...)
	}
}

// TestApiImport imports published records. Each record must be imported once, and each broken record must be reported
// with its name and the reason.
func TestApiImport(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		org := string(w.Organization)
		archive := osvZip(t, 0, 120)
		took := func(counts *advisoriespb.ImportCounts, problems []*advisoriespb.ImportProblem, parts ...any) {
			t.Helper()
			last, st := w.takeIn(t, w.Token, append([]any{org}, parts...)...)
			if st != nil {
				t.Fatal(st)
			}
			if diff := cmp.Diff(counts, last.GetCounts(), protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(problems, last.GetProblems(), protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		}
		half := len(archive) / 2
		took(&advisoriespb.ImportCounts{Created: 120}, nil, doc("all.zip", len(archive)), archive[:half], archive[half:])
		took(&advisoriespb.ImportCounts{Unchanged: 120}, nil, doc("all.zip", len(archive)), archive)
		gone := strings.Replace(osv(7), `"published"`, `"withdrawn":"2026-02-01T00:00:00Z","published"`, 1)
		broken := `{"id":"T-broken","modified":"2026-01-01T00:00:00Z",` +
			`"affected":[{"package":{"ecosystem":"npm","name":"x"},` +
			`"ranges":[{"type":"SEMVER","events":[{"introduced":"2.0.0"},{"fixed":"1.0.0"}]}]}]}`
		last, st := w.takeIn(t, w.Token, org,
			doc("gone.json", len(gone)), []byte(gone),
			doc("broken.json", len(broken)), []byte(broken),
			doc("no.json", 4), []byte("nope"),
			doc("empty.json", 0))
		if st != nil {
			t.Fatal(st)
		}
		diff := cmp.Diff(&advisoriespb.ImportCounts{Updated: 1, Withdrawn: 1, Failed: 3},
			last.GetCounts(), protocmp.Transform())
		if diff != "" {
			t.Error(diff)
		}
		var named []string
		for _, p := range last.GetProblems() {
			named = append(named, p.GetName())
			if p.GetReason() == "" {
				t.Errorf("%s was refused without a reason", p.GetName())
			}
		}
		if diff := cmp.Diff([]string{"broken.json", "no.json", "empty.json"}, named); diff != "" {
			t.Error(diff)
		}
		got := must[*vulnpb.ListAdvisoriesResponse](t, w.overHTTP, w.Token, &vulnpb.ListAdvisoriesRequest{
			AdvisoryIds: []string{"T-00007"},
		})
		if len(got.GetAdvisories()) != 1 || got.GetAdvisories()[0].GetDeleteTime() == nil {
			t.Errorf("advisory T-00007 is %v, want it withdrawn", got)
		}
	})
}

// TestApiImportRefused checks that malformed imports are refused.
func TestApiImportRefused(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		org := string(w.Organization)
		ok := []byte(osv(1))
		tests := map[string]struct {
			parts  []any
			field  string
			code   codes.Code
			bearer string
		}{
			"nothing":               {parts: nil, field: "parent"},
			"no group":              {parts: []any{doc("a.json", 1)}, field: "parent"},
			"a group that is none":  {parts: []any{"x"}, field: "parent"},
			"data of no document":   {parts: []any{org, ok}, field: "document"},
			"a document of no name": {parts: []any{org, doc("", 1)}, field: "document.name"},
			"a name without end":    {parts: []any{org, doc(strings.Repeat("x", 1025), 1)}, field: "document.name"},
			"a size below nothing":  {parts: []any{org, doc("a.json", -1)}, field: "document.size"},
			"a size beyond all":     {parts: []any{org, doc("a.json", 1<<40)}, field: "document.size"},
			"a document too long":   {parts: []any{org, doc("a.json", 3), ok}, field: "data"},
			"a document too short":  {parts: []any{org, doc("a.json", len(ok)+1), ok}, field: "data"},
			"a document cut in":     {parts: []any{org, doc("a.json", len(ok)), doc("b.json", 1)}, field: "data"},
			"a group that is not":   {parts: []any{org + "/0123456789abcdef", doc("a.json", len(ok)), ok}, code: codes.NotFound},
			"as nobody": {
				parts: []any{org, doc("a.json", len(ok)), ok}, code: codes.Unauthenticated, bearer: "nobody",
			},
			"as somebody who may not": {
				parts: []any{org, doc("a.json", len(ok)), ok}, code: codes.PermissionDenied, bearer: "stranger",
			},
		}
		bearers := map[string]string{"": w.Token, "nobody": "", "stranger": w.mint(t, resource.NewRoot(), token.Claims{})}
		for name, tt := range tests {
			t.Run(name, func(t *testing.T) {
				_, st := w.takeIn(t, bearers[tt.bearer], tt.parts...)
				switch {
				case tt.field != "":
					checkInvalid(t, st, tt.field)
				case st.Code() != tt.code:
					t.Errorf("%v, want %s", st, tt.code)
				default:
					checkInfo(t, st)
				}
			})
		}
		got := must[*vulnpb.ListAdvisoriesResponse](t, w.overGRPC, w.Token, &vulnpb.ListAdvisoriesRequest{})
		if got.GetTotalCount() != 0 {
			t.Errorf("%d advisories were created", got.GetTotalCount())
		}
	})
}

// TestApiRoundTrip exports the advisories of one group in each format and imports them into another group. The same
// queries must have the same answers in both groups.
func TestApiRoundTrip(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		org := string(w.Organization)
		first, second := w.child(t, org, "first"), w.child(t, org, "second")
		archive := osvZip(t, 0, 60)
		if _, st := w.takeIn(t, w.Token, first, doc("all.zip", len(archive)), archive); st != nil {
			t.Fatal(st)
		}
		for _, query := range []string{"format=osv", "format=osv&zip=true"} {
			r := w.send(t, w.Token, "GET", "/advisories/v1/export?"+query+"&uidp.children_of="+first, "")
			if r.status != http.StatusOK {
				t.Fatalf("%s: %d %s", query, r.status, r.body)
			}
			last, st := w.takeIn(t, w.Token, second, doc("export", len(r.body)), []byte(r.body))
			if st != nil || last.GetCounts().GetCreated()+last.GetCounts().GetUpdated()+last.GetCounts().GetUnchanged() != 60 {
				t.Fatalf("%s: %v %v", query, last, st)
			}
			for i := range 60 {
				ask := func(group string) []*advisoriespb.Match {
					in := &advisoriespb.QueryAdvisoriesRequest{
						Package: &advisoriespb.PackageVersion{Ecosystem: "npm", Name: fmt.Sprintf("p%d", i), Version: "1.30.0"},
					}
					in.Uidp = under(group)
					matches := must[*advisoriespb.QueryAdvisoriesResponse](t, w.overGRPC, w.Token, in).GetMatches()
					for _, m := range matches {
						m.Uid = ""
					}
					return matches
				}
				if diff := cmp.Diff(ask(first), ask(second), protocmp.Transform()); diff != "" {
					t.Fatalf("%s: the answers for package p%d differ:\n%s", query, i, diff)
				}
			}
		}
		streamed := w.export(t, &advisoriespb.ExportAdvisoriesRequest{
			Format: "osv", Filter: &vulnpb.ListAdvisoriesRequest{Uidp: under(first)},
		})
		overHTTP := w.send(t, w.Token, "GET", "/advisories/v1/export?format=osv&uidp.descendants_of="+first, "").body
		if streamed != overHTTP {
			t.Error("an export differs over gRPC and HTTP")
		}
	})
}

func (w *world) export(t *testing.T, in *advisoriespb.ExportAdvisoriesRequest) string {
	t.Helper()
	stream, err := advisoriespb.NewAdvisoryReadingServiceClient(w.conn).ExportAdvisories(bearing(t, w.Token), in)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		b.Write(m.GetData())
	}
}

// TestApiSecdb reads the secdb view as a scanner does, and checks that only callers who may see the advisories get
// them.
func TestApiSecdb(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		org := string(w.Organization)
		a := theAdvisory()
		e := fixedIn("3.3.2-r1")
		e.ReviewState = vulnpb.ReviewState_REVIEW_STATE_APPROVED
		a.Events = []*vulnpb.AdvisoryEvent{e}
		w.advise(t, org, a)
		get := func(password string) reply {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
				w.BaseURL+"/advisories/v1/secdb/"+org+"/security.json", nil)
			if err != nil {
				t.Fatal(err)
			}
			if password != "" {
				r.SetBasicAuth("scanner", password)
			}
			return w.roundTrip(t, r)
		}
		r := get(w.Token)
		var db struct {
			Packages []struct {
				Pkg struct {
					Name     string
					Secfixes map[string][]string
				}
			}
		}
		err := json.Unmarshal([]byte(r.body), &db)
		if err != nil || r.status != http.StatusOK || r.header.Get("Content-Type") != "application/json" {
			t.Fatalf("%v: %d %s", err, r.status, r.body)
		}
		if len(db.Packages) != 1 || db.Packages[0].Pkg.Name != "openssl" ||
			len(db.Packages[0].Pkg.Secfixes["3.3.2-r1"]) != 1 {
			t.Errorf("secdb view: %s", r.body)
		}
		if st := get("").fault(t); st.Code() != codes.Unauthenticated {
			t.Errorf("without a token: %v", st)
		}
		stranger := get(w.mint(t, resource.NewRoot(), token.Claims{}))
		if stranger.status != http.StatusOK || strings.Contains(stranger.body, "openssl") {
			t.Errorf("as a stranger: %d %s", stranger.status, stranger.body)
		}
		checkInvalid(t, w.send(t, w.Token, "GET", "/advisories/v1/secdb/x/security.json", "").fault(t), "group")
		checkInvalid(t, w.send(t, w.Token, "GET", "/advisories/v1/export?format=x", "").fault(t), "format")
		bad := w.send(t, w.Token, "GET", "/advisories/v1/export?format=osv&event_types=x", "")
		checkInvalid(t, bad.fault(t), "event_types")
	})
}

// TestCrashImport kills the server in the middle of imports. Every record that the server reported as imported must
// be stored, no record may be stored in part, and the next import must continue.
func TestCrashImport(t *testing.T) {
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, url string) {
		const records = 9000
		env := []string{"HOLDFAST_DATA_DIR=" + t.TempDir(), "HOLDFAST_DATABASE=" + url}
		archive := osvZip(t, 0, records)
		reported := int64(0)
		for range 3 {
			p := procStart(t, env...)
			w := worldOf(t, p)
			stream, err := advisoriespb.NewAdvisoryWritingServiceClient(w.conn).ImportAdvisories(bearing(t, w.Token))
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range []any{string(w.Organization), doc("all.zip", len(archive)), archive} {
				if err := stream.Send(part(v)); err != nil {
					t.Fatal(err)
				}
			}
			if m, err := stream.Recv(); err == nil {
				reported = max(reported, m.GetCounts().GetCreated()+m.GetCounts().GetUnchanged())
			}
			p.kill()
			drifts(t, url)
		}
		p := procStart(t, env...)
		w := worldOf(t, p)
		if got := must[*vulnpb.ListAdvisoriesResponse](t, w.overGRPC, w.Token, &vulnpb.ListAdvisoriesRequest{
			PageSize: 1,
		}); got.GetTotalCount() < reported {
			t.Errorf("%d advisories after the kill, but the server had reported %d", got.GetTotalCount(), reported)
		}
		last, st := w.takeIn(t, w.Token, string(w.Organization), doc("all.zip", len(archive)), archive)
		if st != nil || last.GetCounts().GetCreated()+last.GetCounts().GetUnchanged() != records ||
			last.GetCounts().GetUnchanged() < reported {
			t.Errorf("continued import: %v %v, want at least %d unchanged records", last, st, reported)
		}
		got := must[*vulnpb.ListAdvisoriesResponse](t, w.overGRPC, w.Token, &vulnpb.ListAdvisoriesRequest{
			PageSize: 1, Query: "t-0",
		})
		if got.GetTotalCount() != records {
			t.Errorf("search finds %d advisories, want %d", got.GetTotalCount(), records)
		}
		p.stop()
		drifts(t, url)
	})
}

// drifts fails the test if a counter in the database is wrong.
func drifts(t *testing.T, url string) {
	t.Helper()
	s := storetest.Open(t, url)
	wrong, err := s.Drifts(t.Context())
	if err != nil || len(wrong) > 0 {
		t.Errorf("wrong counters: %v, error %v", wrong, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// worldOf returns a world for the server in the separate process p.
func worldOf(t *testing.T, p *proc) *world {
	t.Helper()
	w := &world{BaseURL: "http://" + p.address, Organization: p.dev.Organization, Token: p.dev.Token}
	w.conn = w.dial(t, insecure.NewCredentials())
	return w
}

func under(group string) *commonpb.UIDPFilter { return &commonpb.UIDPFilter{DescendantsOf: group} }
