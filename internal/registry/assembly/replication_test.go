package assembly_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/registry/metadata"
	"github.com/holdfast-dev/holdfast/internal/registry/replication"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream/upstreamtest"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A target is a registry behind a proxy that counts requests and can answer them itself.
type target struct {
	*httptest.Server

	mu      sync.Mutex
	counts  map[string]int // requests, by method and kind
	answers func(http.ResponseWriter, *http.Request) bool
}

// newTarget returns a proxy in front of the registry at an address.
func newTarget(t *testing.T, address string) *target {
	t.Helper()
	to, err := url.Parse(address)
	must(t, err)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host
	}, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	g := &target{counts: map[string]int{}}
	g.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		parts := strings.Split(r.URL.Path, "/")
		if len(parts) > 2 {
			g.counts[r.Method+" "+parts[len(parts)-2]]++
		}
		answers := g.answers
		g.mu.Unlock()
		if answers == nil || !answers(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	g.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		must(t, c.(*net.TCPConn).SetReadBuffer(64<<10)) // so that a target that does not read is soon noticed
		return ctx
	}
	g.Start()
	t.Cleanup(g.Close)
	return g
}

func (g *target) behave(answers func(http.ResponseWriter, *http.Request) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answers = answers
}

// take returns the number of requests since the last call, by method and kind.
func (g *target) take() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	counts := g.counts
	g.counts = map[string]int{}
	return counts
}

// answerTime is how long the copies in most tests wait for an answer of a target.
const answerTime = 5 * time.Second

// A copyRig replicates acme/team to other registries.
type copyRig struct {
	*rig
	service *metadata.Service
	stop    func() // stops copying
}

// newCopyRig returns a copyRig that waits up to patience for an answer of a target.
func newCopyRig(t *testing.T, s *storetest.Store, patience time.Duration) *copyRig {
	t.Helper()
	out := outbound.Config{Loopback: true, Timeout: patience, PerHost: replication.MaxCopies}
	r := &copyRig{rig: newRig(t, s, assembly.Config{
		Key: secret.NewKey(), Outbound: out, KeepTrash: time.Hour, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Targets: upstream.New(upstream.Config{Outbound: out, Stall: 2 * time.Second, MinRate: 64 << 10}),
	})}
	r.service = r.Metadata(page.NewTokens([]byte(strings.Repeat("k", 32)), s.Now))
	r.start(t)
	return r
}

// start copies in the background.
func (r *copyRig) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Replicate.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(r.stop)
}

func (r *copyRig) as(t *testing.T, role string) context.Context {
	return resource.WithActor(authz.WithCaller(t.Context(), authz.Caller{Identity: r.uids[role]}),
		resource.Actor{Subject: r.uids[role]})
}

// replicates creates a replication of acme/team as owner.
func (r *copyRig) replicates(t *testing.T, v registry.Replication) registry.Replication {
	t.Helper()
	v, err := r.service.CreateReplication(r.as(t, "owner"), r.folder.UID, v)
	must(t, err)
	return v
}

func (r *copyRig) status(t *testing.T, v registry.Replication) registry.ReplicationStatus {
	t.Helper()
	s, err := r.store.ReplicationStatus(t.Context(), v)
	must(t, err)
	return s
}

// idle waits until nothing is pending.
func (r *copyRig) idle(t *testing.T, v registry.Replication) {
	t.Helper()
	until(t, v.Name+" is idle", func() bool {
		s := r.status(t, v)
		return s.State == registry.ReplicationIdle && !s.SuccessTime.IsZero()
	})
}

// failing waits until a replication or a tag fails with a reason, and returns the status.
func (r *copyRig) failing(t *testing.T, v registry.Replication, reason string) {
	t.Helper()
	until(t, v.Name+" fails: "+reason, func() bool {
		if strings.Contains(r.status(t, v).Error, reason) {
			return true
		}
		tags, err := r.store.ReplicatedTags(t.Context(), v.UID, page.Request{Size: 50})
		must(t, err)
		for _, g := range tags.Items {
			if strings.Contains(g.Error, reason) {
				return true
			}
		}
		return false
	})
}

// again makes all selected tags due now.
func (r *copyRig) again(t *testing.T, v registry.Replication) {
	t.Helper()
	must(t, r.store.ScanReplication(t.Context(), v.UID, 0))
}

// A distribution is the reference implementation behind a proxy.
type distribution struct {
	*target
	*upstreamtest.Distribution
}

func newDistribution(t *testing.T) distribution {
	t.Helper()
	d := upstreamtest.Start(t)
	return distribution{newTarget(t, "http://"+d.Address), d}
}

func (d distribution) replication(name, path string) registry.Replication {
	return registry.Replication{
		Name: name, Address: d.URL, Path: path, Realm: d.Realm(), Trigger: registry.OnPush,
		Credentials: resource.Secret{Plain: upstreamtest.User + ":" + upstreamtest.Password},
	}
}

// get returns the answer of the registry itself.
func (d distribution) get(t *testing.T, repo, path string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.Address+"/v2/"+repo+path, nil)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+d.Token("repository:"+repo+":pull"))
	req.Header.Set("Accept", ocispec.MediaTypeImageManifest+", "+ocispec.MediaTypeImageIndex)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return answer{resp.StatusCode, resp.Header, body}
}

// TestReplication copies images to the reference implementation: indexes, attached artifacts, tags that move, and
// nothing else. What was copied is not copied again.
func TestReplication(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		r, d := newCopyRig(t, s, answerTime), newDistribution(t)
		amd := r.pushImage(t, "acme/team/app", "", "layer of amd64")
		arm := r.pushImage(t, "acme/team/app", "", "layer of arm64")
		index := r.pushIndex(t, "acme/team/app", "v1", amd, arm)
		r.pushImage(t, "acme/team/app", "dev", "not selected")
		r.pushImage(t, "acme/team/other", "v1", "not selected, too")
		before := r.attach(t, "acme/team/app", index, "an sbom")
		v := d.replication("partner", "copies")
		v.Repos, v.Tags = []string{"app", "deep/**"}, []string{"v*"}
		v = r.replicates(t, v)
		r.idle(t, v)
		for reference, want := range map[string][]byte{
			"v1": index, sha(amd): amd, sha(arm): arm, sha(index): index, sha(before): before,
		} {
			if got := d.get(t, "copies/app", "/manifests/"+reference); string(got.body) != string(want) {
				t.Errorf("%s is %d %s, want %s", reference, got.status, got.body, want)
			}
		}
		if got := d.get(t, "copies/app", "/blobs/"+sha([]byte("layer of arm64"))); string(got.body) != "layer of arm64" {
			t.Errorf("a layer is %d %q", got.status, got.body)
		}
		for _, path := range []string{"app/manifests/dev", "other/manifests/v1"} {
			repo, path, _ := strings.Cut(path, "/")
			if got := d.get(t, "copies/"+repo, "/"+path); got.status != http.StatusNotFound {
				t.Errorf("%s %s is %d", repo, path, got.status)
			}
		}
		after := r.attach(t, "acme/team/app", index, "a signature")
		until(t, "an artifact that was attached later is copied and listed", func() bool {
			list := string(d.get(t, "copies/app", "/referrers/"+sha(index)).body) +
				string(d.get(t, "copies/app", "/manifests/"+strings.Replace(sha(index), ":", "-", 1)).body)
			return strings.Contains(list, sha(before)) && strings.Contains(list, sha(after))
		})
		r.group(t, r.group(t, r.folder.UID, "deep").UID, "down")
		moved := r.pushImage(t, "acme/team/app", "v1", "layer of arm64")
		r.pushImage(t, "acme/team/deep/down/app", "v2", "layer of amd64")
		until(t, "a moved tag and a new repo are copied", func() bool {
			return string(d.get(t, "copies/app", "/manifests/v1").body) == string(moved) &&
				d.get(t, "copies/deep/down/app", "/manifests/v2").status == http.StatusOK
		})
		r.idle(t, v)
		d.take()
		r.again(t, v)
		until(t, "all tags are compared again", func() bool {
			return r.status(t, v).State == registry.ReplicationIdle && !r.scanned(t, v)
		})
		if n := d.take(); len(n) > 0 {
			t.Errorf("comparing what was copied took %v", n)
		}
		r.Pulls.Flush(t.Context())
		var pulls int
		must(t, s.Row(t.Context(), `SELECT count(*) FROM pulls WHERE agent = 'replication' AND identity = $1`,
			[]any{string(r.uids["owner"])}, &pulls))
		if pulls < 3 {
			t.Errorf("%d copies are in the log of pulls", pulls)
		}
	})
}

// scanned reports whether a scan is still due.
func (r *copyRig) scanned(t *testing.T, v registry.Replication) (due bool) {
	t.Helper()
	must(t, r.store.Row(t.Context(), `SELECT scan_ms IS NOT NULL FROM replication_states WHERE uid = $1`,
		[]any{string(v.UID)}, &due))
	return due
}

// pushIndex pushes an index of images.
func (r *copyRig) pushIndex(t *testing.T, repo, tag string, images ...[]byte) []byte {
	t.Helper()
	var list []string
	for _, m := range images {
		list = append(list, fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":%d}`, ocispec.MediaTypeImageManifest, sha(m),
			len(m)))
	}
	index := []byte(fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[%s]}`, ocispec.MediaTypeImageIndex,
		strings.Join(list, ",")))
	c := r.putting(repo, tag, index)
	c.headers = []string{"Content-Type", ocispec.MediaTypeImageIndex}
	r.want(t, c, http.StatusCreated)
	return index
}

// attach pushes an artifact that is attached to a manifest.
func (r *copyRig) attach(t *testing.T, repo string, subject []byte, content string) []byte {
	t.Helper()
	config, layer := r.pushBlob(t, repo, []byte("{}")), r.pushBlob(t, repo, []byte(content))
	m := []byte(fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"artifactType":"application/x",`+
		`"config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":%q,"size":2},`+
		`"layers":[{"mediaType":"text/plain","digest":%q,"size":%d}],`+
		`"subject":{"mediaType":%q,"digest":%q,"size":%d}}`, ocispec.MediaTypeImageManifest, config.Digest, layer.Digest,
		layer.Size, ocispec.MediaTypeImageIndex, sha(subject), len(subject)))
	r.want(t, r.putting(repo, sha(m), m), http.StatusCreated)
	return m
}

// TestReplicationAccess checks who may set up a replication, and that copies end when the access of that person does.
func TestReplicationAccess(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		r, d := newCopyRig(t, s, answerTime), newDistribution(t)
		for _, role := range []string{"stranger", "viewer", "editor", "registry.push"} {
			_, err := r.service.CreateReplication(r.as(t, role), r.folder.UID, d.replication("far", ""))
			if !errors.Is(err, fault.PermissionDenied) {
				t.Errorf("%s creates a replication: %v", role, err)
			}
		}
		caps := resource.NewCapabilities(resource.GroupsUpdate, resource.RepoList)
		narrowed := authz.WithCaller(t.Context(), authz.Caller{Identity: r.uids["owner"], Caps: &caps})
		if _, err := r.service.CreateReplication(narrowed, r.folder.UID, d.replication("far", "")); !errors.Is(err,
			fault.PermissionDenied) {
			t.Errorf("a narrowed token creates a replication: %v", err)
		}
		helper := resource.UserUID("https://people.test", "helper")
		r.uids["helper"] = helper
		r.bind(t, helper, "owner", r.folder.UID)
		v, err := r.service.CreateReplication(r.as(t, "helper"), r.folder.UID, d.replication("far", "copies"))
		must(t, err)
		r.pushImage(t, "acme/team/app", "v1", "layer")
		r.idle(t, v)
		var binding string
		must(t, s.Row(t.Context(), `SELECT uid FROM role_bindings WHERE identity = $1`, []any{string(helper)}, &binding))
		must(t, s.DeleteBinding(t.Context(), resource.UID(binding)))
		r.pushImage(t, "acme/team/app", "v2", "secret")
		r.failing(t, v, "may not read the images")
		if got := d.get(t, "copies/app", "/manifests/v2"); got.status != http.StatusNotFound {
			t.Errorf("an image was copied after the access ended: %d", got.status)
		}
		_, err = r.service.UpdateReplication(r.as(t, "owner"), v.UID, func(*registry.Replication) error { return nil })
		must(t, err)
		until(t, "the copies continue for somebody else", func() bool {
			return d.get(t, "copies/app", "/manifests/v2").status == http.StatusOK
		})
	})
}

// TestReplicationToHoldfast copies to a repo of the same server, follows deletions, and continues where it ended.
func TestReplicationToHoldfast(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		r := newCopyRig(t, s, answerTime)
		g := newTarget(t, r.url)
		r.group(t, r.org.UID, "copies")
		const tags = 40
		for i := range tags {
			r.pushImage(t, "acme/team/app", fmt.Sprint("v", i), fmt.Sprint("layer ", i))
		}
		v := r.replicates(t, registry.Replication{
			Name: "copy", Address: g.URL, Path: "acme/copies", Realm: r.url + "/v2/token", Trigger: registry.OnPush,
			FollowDeletions: true, Credentials: resource.Secret{Plain: "_token:" + r.tokens["owner"]},
		})
		until(t, "some tags are copied", func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.counts["PUT manifests"] >= 5
		})
		r.stop()
		var known int
		must(t, s.Row(t.Context(), `SELECT count(*) FROM replication_tags WHERE digest <> ''`, nil, &known))
		r.start(t)
		r.idle(t, v)
		counts := g.take()
		if counts["PUT manifests"] > tags+4 {
			t.Errorf("%d tags took %d manifests, although %d were recorded before the restart", tags,
				counts["PUT manifests"], known)
		}
		copied := r.repo(t, "acme/copies/app")
		if got := r.tags(t, copied.UID); len(got) != tags {
			t.Errorf("%d tags were copied", len(got))
		}
		source := r.repo(t, "acme/team/app")
		must(t, s.DeleteTagNamed(t.Context(), source.UID, "v3", nil))
		r.pushImage(t, "acme/copies/app", "v4", "somebody else's")
		must(t, s.DeleteTagNamed(t.Context(), source.UID, "v4", nil))
		until(t, "a deleted tag is deleted at the target, and one that has moved there stays", func() bool {
			got := r.tags(t, copied.UID)
			return got["v3"] == "" && got["v4"] != ""
		})
		r.idle(t, v)
	})
}
