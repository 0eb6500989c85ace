package e2e_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

const (
	sentBefore = 1 << 20  // number of bytes of a download that the test reads before the revocation
	sentAfter  = 10 << 20 // greatest number of bytes after it: 4 MiB, and what the buffers of a connection hold
)

// A download is a large body that a caller reads.
type download struct {
	path     string
	registry bool // whether the token is for the registry
	size     int  // number of bytes, or 0 if it is not known
}

// blobUpstream returns the address of a registry that has one blob.
func blobUpstream(t *testing.T, content string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/blobs/"+digestOf(content)) {
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, content) // fails if the client leaves
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// largeAdvisories imports advisories whose export and whose secdb have more bytes than sentAfter.
func (w *world) largeAdvisories(t *testing.T, group string) {
	t.Helper()
	parts := []any{group}
	add := func(text string) {
		parts = append(parts, doc(fmt.Sprint(len(parts), ".json"), len(text)))
		for ; len(text) > 1<<20; text = text[1<<20:] {
			parts = append(parts, []byte(text[:1<<20]))
		}
		parts = append(parts, []byte(text))
	}
	for i := range 80 {
		details := `"details":"` + strings.Repeat("A description. ", 15_000) + `","summary":`
		add(strings.Replace(osv(20_000+i), `"summary":`, details, 1))
	}
	var aliases, affected []string
	for i := range 400 {
		aliases = append(aliases, fmt.Sprintf(`"X-%d-%s"`, i, strings.Repeat("x", 200)))
	}
	for i := range 200 {
		affected = append(affected, fmt.Sprintf(`{"package":{"ecosystem":"Wolfi","name":"p%d","purl":"pkg:apk/wolfi/p%d"},`+
			`"ranges":[{"type":"ECOSYSTEM","events":[{"introduced":"0"},{"fixed":"1.0-r0"}]}]}`, i, i))
	}
	add(`{"schema_version":"1.6.0","id":"T-30000","modified":"2026-01-02T03:04:05Z","aliases":[` +
		strings.Join(aliases, ",") + `],"affected":[` + strings.Join(affected, ",") + `]}`)
	if last, st := w.takeIn(t, w.Token, parts...); st != nil || len(last.GetProblems()) > 0 {
		t.Fatalf("%v: %v", st, last.GetProblems())
	}
}

// read downloads a body, and calls between after the first bytes. It returns how many bytes arrived afterwards.
func (w *world) read(t *testing.T, bearer string, d download, between func()) (after int64, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.BaseURL+d.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+bearer)
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(64 << 10) // otherwise the kernel accepts more and more
		}
		return conn, err
	}}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.CopyN(io.Discard, resp.Body, sentBefore); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: HTTP status %d: %v", d.path, resp.StatusCode, err)
	}
	between()
	return io.Copy(io.Discard, resp.Body)
}

// TestAttackDownloadsInFlight deletes the identity of a caller who has read the first part of a download. The rest does
// not arrive.
func TestAttackDownloadsInFlight(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		group, mirror := w.child(t, string(w.Organization), "folder"), w.child(t, string(w.Organization), "mirror")
		stored, far := make([]byte, 32<<20), make([]byte, 32<<20)
		_, _ = rand.Read(stored)
		_, _ = rand.Read(far)
		w.putBlob(t, "/v2/dev/folder/app/", string(stored))
		must[*ocipb.Upstream](t, w.overGRPC, w.Token, &ocipb.CreateUpstreamRequest{
			Parent: mirror, Upstream: &ocipb.Upstream{Name: "far", Address: blobUpstream(t, string(far))},
		})
		w.largeAdvisories(t, group)
		for name, d := range map[string]download{
			"blob":          {"/v2/dev/folder/app/blobs/" + digestOf(string(stored)), true, len(stored)},
			"mirrored blob": {"/v2/dev/mirror/app/blobs/" + digestOf(string(far)), true, len(far)},
			"secdb":         {"/advisories/v1/secdb/" + group, false, 0},
			"export":        {"/advisories/v1/export?format=osv&uidp.childrenOf=" + group, false, 0},
		} {
			for _, revoked := range []bool{true, false} { // a download that ends stores the mirrored blob
				robot := w.robot(t, string(w.Organization), "robot"+rand8())
				w.bind(t, string(w.Organization), robot, ownerRole)
				claims := token.Claims{}
				if d.registry {
					claims.Audience = []string{w.RegistryHost}
				}
				after, err := w.read(t, w.mint(t, resource.UID(robot), claims), d, func() {
					if revoked {
						w.delete(t, "/iam/v2beta1/identities/"+robot)
					}
				})
				switch {
				case revoked && (err == nil || after > sentAfter):
					t.Errorf("%s: %d bytes arrived after the identity was deleted: %v", name, after, err)
				case !revoked && (err != nil || after <= sentAfter || d.size > 0 && int(after) != d.size-sentBefore):
					t.Errorf("%s: without a revocation, %d bytes arrived: %v", name, after, err)
				}
			}
		}
	})
}
