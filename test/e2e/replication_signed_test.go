package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	"github.com/holdfast-dev/holdfast/internal/registry/signature/signaturetest"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream/upstreamtest"
)

// TestReplicationSignedOnly copies only signed images to the registry "distribution". An unsigned image is not pending,
// and is listed with the reason. It is copied once it is signed, or once its signer is trusted.
func TestReplicationSignedOnly(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		d := upstreamtest.Start(t)
		group := w.child(t, string(w.Organization), "signed")
		key := ok[signaturetest.Key](t)(signaturetest.NewKey("ecdsa"))
		late := ok[signaturetest.Key](t)(signaturetest.NewKey("ecdsa"))
		w.signer(t, group, &ocipb.Signer{Name: "release", Key: key.PEM()})
		const repo = "dev/signed/app"
		w.signedWith(t, key, repo, w.pushImage(t, repo, "good", "amd64", "a signed layer"))
		plain := w.pushImage(t, repo, "plain", "amd64", "an unsigned layer")
		w.signedWith(t, late, repo, w.pushImage(t, repo, "foreign", "amd64", "a layer of somebody else"))
		uid := must[*ocipb.Replication](t, w.overGRPC, w.Token, &ocipb.CreateReplicationRequest{
			Parent: group, Replication: &ocipb.Replication{
				Name: "far", Address: "http://" + d.Address, Realm: d.Realm(), SignedOnly: true,
				Credentials: upstreamtest.User + ":" + upstreamtest.Password,
			},
		}).GetUid()
		far := &ociClient{d.Address, d.Token("repository:app:pull"), &http.Client{Timeout: procPatience}}
		// left waits until nothing is pending, and returns the tags that were not copied, with the reasons.
		left := func(want int) map[string]string {
			t.Helper()
			var tags map[string]string
			procUntil(t, "nothing is pending", func() bool {
				// The state is read first: if nothing is pending, the reasons that are read afterwards are complete.
				r := must[*ocipb.Replication](t, w.overGRPC, w.Token, &ocipb.GetReplicationRequest{Uid: uid})
				tags = map[string]string{}
				for _, g := range must[*ocipb.PreviewReplicationResponse](t, w.overGRPC, w.Token,
					&ocipb.PreviewReplicationRequest{Uid: uid}).GetTags() {
					tags[g.GetTag()] = g.GetError()
				}
				return r.GetState() == ocipb.ReplicationState_REPLICATION_STATE_IDLE && r.GetPending() == 0 &&
					r.GetSuccessTime() != nil && len(tags) == want
			})
			for _, tag := range []string{"good", "plain", "foreign"} {
				status := http.StatusOK
				if _, missing := tags[tag]; missing {
					status = http.StatusNotFound
				}
				if _, _, err := far.expect(t.Context(), status, "GET", "/v2/app/manifests/"+tag, nil, "Accept",
					manifestType); err != nil {
					t.Error(err)
				}
			}
			return tags
		}
		if got := left(2); !strings.Contains(got["plain"], "is not signed") ||
			!strings.Contains(got["foreign"], "none of the signers") {
			t.Errorf("the tags that were not copied: %q", got)
		}
		w.signedWith(t, key, repo, plain)
		left(1)
		w.signer(t, group, &ocipb.Signer{Name: "late", Key: late.PEM()})
		left(0)
	})
}
