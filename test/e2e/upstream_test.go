package e2e_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream/upstreamtest"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// upstream creates an upstream registry for a group, and returns its UID.
func (w *world) upstream(t *testing.T, group string) string {
	t.Helper()
	in := &ocipb.CreateUpstreamRequest{Parent: group, Upstream: &ocipb.Upstream{Name: "docker.io"}}
	return must[*ocipb.Upstream](t, w.overGRPC, w.Token, in).GetUid()
}

// TestMirrorOfDistribution pulls images from the registry "distribution" through a Holdfast server.
// Distribution requires a token from a token server on another host.
func TestMirrorOfDistribution(t *testing.T) {
	t.Parallel()
	d := upstreamtest.Start(t)
	far := &ociClient{d.Address, d.Token("repository:library/app:pull,push"), &http.Client{Timeout: procPatience}}
	layer := bytes.Repeat([]byte("layer"), 100_000)
	signature := far.note(t, "library/app", far.pushAll(t, "library/app", "v1", layer))
	storyWorld(t, func(t *testing.T, w *world) {
		group := w.child(t, string(w.Organization), "mirror")
		realm := must[*ocipb.Upstream](t, w.overGRPC, w.Token, &ocipb.CreateUpstreamRequest{
			Parent: group,
			Upstream: &ocipb.Upstream{
				Name: "distribution", Address: "http://" + d.Address,
				Credentials: upstreamtest.User + ":" + upstreamtest.Password,
			},
		})
		near := &ociClient{w.RegistryHost, w.RegistryToken, &http.Client{Timeout: procPatience}}
		if _, text, err := near.expect(t.Context(), http.StatusForbidden, "GET", "/v2/dev/mirror/library/app/manifests/v1",
			nil); err != nil {
			t.Errorf("the password was sent to a realm that is not configured: %s, %v", text, err)
		}
		must[proto.Message](t, w.overGRPC, w.Token, &ocipb.UpdateUpstreamRequest{Upstream: &ocipb.Upstream{
			Uid: realm.GetUid(), Realm: d.Realm(), Credentials: upstreamtest.User + ":" + upstreamtest.Password,
		}})
		if err := near.pull(t.Context(), "dev/mirror/library/app", "v1"); err != nil {
			t.Fatal(err)
		}
		image, _, err := near.expect(t.Context(), http.StatusOK, "HEAD", "/v2/dev/mirror/library/app/manifests/v1", nil)
		if err != nil {
			t.Fatal(err)
		}
		list := "/v2/dev/mirror/library/app/referrers/" + image.Header.Get("Docker-Content-Digest")
		if _, text, err := near.expect(t.Context(), http.StatusOK, "GET", list, nil); err != nil ||
			!strings.Contains(string(text), signature) {
			t.Errorf("the attached artifacts: %s, %v", text, err)
		}
		got := must[*ocipb.Upstream](t, w.overHTTP, w.Token, &ocipb.GetUpstreamRequest{Uid: realm.GetUid()})
		if !got.GetHasCredentials() || got.GetCredentials() != "" {
			t.Errorf("upstream = %v", got)
		}
	})
}

// note attaches an artifact to an image, and returns the digest of the artifact. It uses a tag, because this registry
// cannot list referrers.
func (c *ociClient) note(t *testing.T, repo, image string) string {
	t.Helper()
	const config = `{"os":"linux","architecture":"amd64"}` // pushAll has pushed this configuration
	put := func(tag, kind, text string) string {
		t.Helper()
		if _, answer, err := c.expect(t.Context(), http.StatusCreated, "PUT", "/v2/"+repo+"/manifests/"+tag, []byte(text),
			"Content-Type", kind); err != nil {
			t.Fatalf("%v\n%s", err, answer)
		}
		return ociDigest([]byte(text))
	}
	artifact := put("artifact", manifestType, fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"artifactType":"text/x",`+
		`"config":{"mediaType":"text/x","digest":%q,"size":%d},`+
		`"layers":[],"subject":{"mediaType":%[1]q,"digest":%[4]q,"size":1}}`,
		manifestType, ociDigest([]byte(config)), len(config), image))
	put(strings.Replace(image, ":", "-", 1), indexType,
		fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[{"mediaType":%q,"digest":%q,"size":1}]}`, indexType,
			manifestType, artifact))
	return artifact
}

// pushAll pushes an image with requests that every registry supports, and returns the digest of the image.
func (c *ociClient) pushAll(t *testing.T, repo, tag string, layer []byte) string {
	t.Helper()
	config := []byte(`{"os":"linux","architecture":"amd64"}`)
	expect := func(status int, method, path string, body []byte, headers ...string) http.Header {
		t.Helper()
		resp, text, err := c.expect(t.Context(), status, method, path, body, headers...)
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", method, path, err, text)
		}
		return resp.Header
	}
	var refs []string
	for _, b := range [][]byte{config, layer} {
		location := expect(http.StatusAccepted, "POST", "/v2/"+repo+"/blobs/uploads/", nil).Get("Location")
		expect(http.StatusCreated, "PUT", location+"&digest="+ociDigest(b), b, "Content-Type", "application/octet-stream")
		refs = append(refs,
			fmt.Sprintf(`{"mediaType":"application/octet-stream","digest":%q,"size":%d}`, ociDigest(b), len(b)))
	}
	const kind = "application/vnd.oci.image.manifest.v1+json"
	m := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":%s,"layers":[%s]}`, kind, refs[0], refs[1])
	expect(http.StatusCreated, "PUT", "/v2/"+repo+"/manifests/"+tag, []byte(m), "Content-Type", kind)
	return ociDigest([]byte(m))
}

// TestMirrorKeyless pulls through a server from another Holdfast server. The first server authenticates with a token of
// its own issuer, so that no secret is configured.
func TestMirrorKeyless(t *testing.T) {
	t.Parallel()
	address := testkit.FreeAddress(t)
	near := procStart(t, "HOLDFAST_DATA_DIR="+t.TempDir(), "HOLDFAST_LISTEN="+address, "HOLDFAST_BASE_URL=http://"+address)
	far := serve(t, storetest.SQLite(t), server.Config{}, nil)
	far.child(t, string(far.Organization), "images")
	far.pushImage(t, "dev/images/app", "v1", "amd64", "from afar")
	org := string(near.dev.Organization)
	group := procMust[procGroup](t, near.owner(), http.MethodPost, "/iam/v2beta1/groups/"+org,
		map[string]any{"name": "mirror"})
	up := procMust[struct{ UID string }](t, near.owner(), http.MethodPost, "/oci/v1/upstreams/"+string(group.UID),
		map[string]any{"name": "far", "address": far.BaseURL})
	identity := must[*iampb.Identity](t, far.overGRPC, far.Token, &iampb.CreateIdentityRequest{
		Parent: string(far.Organization),
		Identity: &iampb.Identity{
			Name: "mirror", Relationship: &iampb.Identity_ClaimMatch_{ClaimMatch: &iampb.Identity_ClaimMatch{
				Iss: &iampb.Identity_ClaimMatch_Issuer{Issuer: "http://" + address},
				Sub: &iampb.Identity_ClaimMatch_Subject{Subject: "upstream:" + up.UID},
				Aud: &iampb.Identity_ClaimMatch_Audience{Audience: far.BaseURL},
			}},
		},
	})
	pull := func(want int) {
		t.Helper()
		if _, text, err := near.registry().expect(t.Context(), want, "GET", "/v2/dev/mirror/dev/images/app/manifests/v1",
			nil); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	pull(http.StatusForbidden)
	procMust[struct{}](t, near.owner(), http.MethodPatch, "/oci/v1/upstreams/"+up.UID+"?updateMask=identity",
		map[string]any{"identity": identity.GetUid()})
	pull(http.StatusForbidden) // the identity has no role yet
	far.bind(t, string(far.Organization), identity.GetUid(), string(resource.ManagedRoleUID("registry.pull")))
	pull(http.StatusOK)
	if err := near.registry().pull(t.Context(), "dev/mirror/dev/images/app", "v1"); err != nil {
		t.Fatal(err)
	}
}

// TestMirrorFullDisk: if the disk has no room for a blob, then the client gets an error or fewer bytes than the
// length of the blob, and no partial blob is stored. When there is room again, the pull succeeds.
func TestMirrorFullDisk(t *testing.T) {
	layer := bytes.Repeat([]byte("0123456789abcdef"), 256<<10) // 4 MiB
	far := serve(t, storetest.SQLite(t), server.Config{}, nil)
	far.child(t, string(far.Organization), "images")
	origin := &ociClient{far.RegistryHost, far.RegistryToken, &http.Client{Timeout: procPatience}}
	if err := origin.push(t.Context(), "dev/images/app", "v1", layer); err != nil {
		t.Fatal(err)
	}
	// The folder for stored blobs, and the folder for blobs that are being received.
	for _, full := range []string{"blobs", "data"} {
		t.Run(full, func(t *testing.T) {
			storetest.StoryURL(t, func(t *testing.T, url string) {
				disk, other := faultDisk(t, 16<<20), t.TempDir()
				dirs := map[string]string{"blobs": other, "data": other}
				dirs[full] = disk
				mirrorFullDisk(t, far, layer, disk,
					map[string]string{
						"DATA_DIR": filepath.Join(dirs["data"], "d"), "BLOBS": filepath.Join(dirs["blobs"], "b"), "DATABASE": url,
					})
			})
		})
	}
	t.Run("database", func(t *testing.T) { // only with SQLite, because operators manage the disk of PostgreSQL
		disk, other := faultDisk(t, 8<<20), t.TempDir()
		mirrorFullDisk(t, far, layer, disk,
			map[string]string{"DATA_DIR": other, "BLOBS": filepath.Join(other, "b"), "DATABASE": filepath.Join(disk, "h.db")})
	})
}

// mirrorFullDisk pulls a blob through a server with these settings while the disk is full, and again when there is
// room.
func mirrorFullDisk(t *testing.T, far *world, layer []byte, disk string, settings map[string]string) {
	t.Helper()
	var env []string
	for name, value := range settings {
		env = append(env, "HOLDFAST_"+name+"="+value)
	}
	p := procStart(t, env...)
	group := procMust[procGroup](t, p.owner(), http.MethodPost, "/iam/v2beta1/groups/"+string(p.dev.Organization),
		map[string]any{"name": strings.ToLower(rand.Text())})
	procMust[struct{}](t, p.owner(), http.MethodPost, "/oci/v1/upstreams/"+string(group.UID),
		map[string]any{"name": "far", "address": far.BaseURL, "credentials": "_token:" + far.RegistryToken})
	path := "/v2/dev/" + group.Name + "/dev/images/app/blobs/" + ociDigest(layer)
	filler := faultFill(t, disk)
	// The server verifies and sends a blob before it writes to the database.
	inDatabase := strings.HasPrefix(settings["DATABASE"], disk)
	if inDatabase {
		procUntil(t, "writes are refused", func() bool { // the write-ahead log of the database may still have room
			return p.owner().code(t.Context(), http.MethodPost, faultGroups(p, http.MethodPost),
				faultBody(http.MethodPost)) != http.StatusOK
		})
	}
	resp, text, err := p.registry().send(t.Context(), "GET", path, nil)
	if err == nil && resp.StatusCode == http.StatusOK && !inDatabase {
		t.Errorf("a pull with a full disk returned %d bytes and looks complete", len(text))
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, text, err := p.registry().expect(t.Context(), http.StatusOK, "GET", path, nil); err != nil ||
		!bytes.Equal(text, layer) {
		t.Errorf("a pull with room on the disk returned %d bytes: %v", len(text), err)
	}
	// If the database was full, it may lack the entry for a stored blob, which the garbage collector removes later.
	if !inDatabase {
		procUntil(t, "one file is stored", func() bool { return ociFiles(t, settings["BLOBS"], func(string) {}) == 1 })
	}
	p.stop()
}
