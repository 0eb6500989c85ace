package e2e_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/signature/signaturetest"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// A keyless is a server that copies to another Holdfast, without a secret. It is a process with an address of its own,
// because the other server asks its issuer for keys.
type keyless struct {
	*world // pushes to the source
	near   *proc
	owner  *procClient
	far    *world // the target
	uid    string // names the replication
}

// keylessStatus is what the source reports.
type keylessStatus struct{ UID, State, LastError, Pending string }

// newKeyless starts both servers, and creates a replication of all repos of the source that has no credentials.
func newKeyless(t *testing.T, database string) *keyless {
	t.Helper()
	address := testkit.FreeAddress(t)
	near := procStart(t, "HOLDFAST_DATA_DIR="+t.TempDir(), "HOLDFAST_DATABASE="+database,
		"HOLDFAST_LISTEN="+address, "HOLDFAST_BASE_URL=http://"+address)
	k := &keyless{near: near, owner: near.owner(), far: serve(t, storetest.SQLite(t), server.Config{}, nil), world: &world{
		BaseURL: "http://" + address, RegistryHost: address, RegistryToken: near.dev.RegistryToken,
		client: &http.Client{Timeout: procPatience},
	}}
	k.uid = k.replicates(t, "far", nil)
	return k
}

// replicates creates a replication to the target and returns its UID.
func (k *keyless) replicates(t *testing.T, name string, more map[string]any) string {
	t.Helper()
	body := map[string]any{"name": name, "address": k.far.BaseURL, "path": "dev/copies", "followDeletions": true}
	for field, value := range more {
		body[field] = value
	}
	return procMust[keylessStatus](t, k.owner, http.MethodPost,
		"/oci/v1/replications/"+string(k.near.dev.Organization), body).UID
}

// fails waits until a replication reports a reason.
func (k *keyless) fails(t *testing.T, uid, reason string) {
	t.Helper()
	var s keylessStatus
	procUntil(t, "a replication fails: "+reason, func() bool {
		s = procMust[keylessStatus](t, k.owner, http.MethodGet, "/oci/v1/replications/"+uid, nil)
		tags := procMust[struct{ Tags []struct{ Error string } }](t, k.owner, http.MethodGet,
			"/oci/v1/replicationTags/"+uid, nil).Tags
		return s.State == "REPLICATION_STATE_FAILING" && (strings.Contains(s.LastError, reason) ||
			len(tags) > 0 && strings.Contains(tags[0].Error, reason))
	})
	t.Logf("the reason is %q", s.LastError)
}

// runs copies now, and waits until the target has a tag with a digest, or no such tag if the digest is "".
func (k *keyless) runs(t *testing.T, repo, tag, digest string) {
	t.Helper()
	procMust[struct{}](t, k.owner, http.MethodPost, "/oci/v1/replicationRuns/"+k.uid, map[string]any{})
	procUntil(t, repo+":"+tag+" is "+digest, func() bool {
		return k.far.oci(t, k.far.RegistryToken, "HEAD", "/v2/"+repo+"/manifests/"+tag, "").
			header.Get("Docker-Content-Digest") == digest
	})
}

// TestReplicationKeyless copies to another Holdfast that trusts the tokens of the source: indexes, signatures, SBOMs
// and deletions. Without the trust or a role at the target, nothing is copied, and the reason is reported.
func TestReplicationKeyless(t *testing.T) {
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, database string) {
		k := newKeyless(t, database)
		key := ok[signaturetest.Key](t)(signaturetest.NewKey("ecdsa"))
		plain := k.pushImage(t, "dev/app", "plain", "amd64", "a layer")
		index := k.pushIndex(t, "dev/app", "v1", "amd64", "arm64")
		k.signedWith(t, key, "dev/app", index)
		sbom := k.attach(t, "dev/app", "", index, "application/spdx+json", `{"spdxVersion":"SPDX-2.3"}`)
		k.fails(t, k.uid, "refuses")
		identity := k.trusted(t, k.uid)
		procMust[struct{}](t, k.owner, http.MethodPatch, "/oci/v1/replications/"+k.uid+"?updateMask=identity",
			map[string]any{"identity": identity})
		copies := k.far.child(t, string(k.far.Organization), "copies")
		push := string(resource.ManagedRoleUID("registry.push"))
		binding := k.far.bind(t, copies, identity, push)
		k.runs(t, "dev/copies/app", "v1", index)
		k.runs(t, "dev/copies/app", "plain", plain)
		k.complete(t, "dev/copies/app", index, sbom)
		k.far.signer(t, copies, &ocipb.Signer{Name: "release", Key: key.PEM()})
		if got := k.far.signersOf(t, k.far.overGRPC, k.copiedRepo(t, copies), index); got != "release" {
			t.Errorf("at the target, the image is signed by %q", got)
		}
		t.Run("another replication names the identity", func(t *testing.T) {
			other := k.replicates(t, "thief", map[string]any{"identity": identity})
			k.fails(t, other, "refuses")
		})
		if got := k.oci(t, k.RegistryToken, "DELETE", "/v2/dev/app/manifests/plain", ""); got.status != 202 {
			t.Fatalf("the tag is not deleted: %d %s", got.status, got.body)
		}
		k.runs(t, "dev/copies/app", "plain", "")
		must[proto.Message](t, k.far.overGRPC, k.far.Token, &iampb.DeleteRoleBindingRequest{Uid: binding})
		moved := k.pushImage(t, "dev/app", "v1", "amd64", "a later layer")
		k.fails(t, k.uid, "refuses")
		if got := k.far.oci(t, k.far.RegistryToken, "HEAD", "/v2/dev/copies/app/manifests/v1", ""); got.header.
			Get("Docker-Content-Digest") != index {
			t.Errorf("after the revocation, the target has %s", got.header)
		}
		k.far.bind(t, copies, identity, push)
		k.runs(t, "dev/copies/app", "v1", moved)
	})
}

// trusted creates an identity at the target for a replication, and returns its UID.
func (k *keyless) trusted(t *testing.T, replication string) string {
	t.Helper()
	return k.far.identify(t, &iampb.Identity{
		Name: "source", Relationship: &iampb.Identity_ClaimMatch_{ClaimMatch: &iampb.Identity_ClaimMatch{
			Iss: &iampb.Identity_ClaimMatch_Issuer{Issuer: k.BaseURL},
			Sub: &iampb.Identity_ClaimMatch_Subject{Subject: "replication:" + replication},
			Aud: &iampb.Identity_ClaimMatch_Audience{Audience: k.far.BaseURL},
		}},
	})
}

// copiedRepo returns the UID of the only repo below a group of the target.
func (k *keyless) copiedRepo(t *testing.T, group string) string {
	t.Helper()
	repos := must[*registrypb.ListReposResponse](t, k.far.overGRPC, k.far.Token, &registrypb.ListReposRequest{
		Uidp: &commonpb.UIDPFilter{DescendantsOf: group},
	}).GetRepos()
	if len(repos) != 1 {
		t.Fatalf("the target has the repos %v", repos)
	}
	return repos[0].GetUid()
}

// complete checks that the target has an index, its images, their layers, and what is attached to the index.
func (k *keyless) complete(t *testing.T, repo, index, sbom string) {
	t.Helper()
	get := func(w *world, repo, path string) string {
		t.Helper()
		got := w.oci(t, w.RegistryToken, "GET", "/v2/"+repo+path, "")
		if got.status != http.StatusOK {
			t.Errorf("%s%s: status %d", repo, path, got.status)
		}
		return got.body
	}
	signature := strings.Replace(index, ":", "-", 1) + ".sig"
	paths := []string{"/manifests/" + index, "/manifests/" + sbom, "/manifests/" + signature, "/referrers/" + index}
	for _, architecture := range []string{"amd64", "arm64"} {
		paths = append(paths, "/blobs/"+digestOf("layer for "+architecture))
	}
	for _, path := range paths {
		if here, there := get(k.world, "dev/app", path), get(k.far, repo, path); here != there {
			t.Errorf("%s is %s at the target, want %s", path, there, here)
		}
	}
	if list := get(k.far, repo, "/tags/list"); slices.ContainsFunc([]string{"plain", "v1"}, func(tag string) bool {
		return !strings.Contains(list, `"`+tag+`"`)
	}) {
		t.Errorf("the target has the tags %s", list)
	}
}
