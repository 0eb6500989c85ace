package e2e_test

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/signature/signaturetest"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

const (
	payloadType = "application/vnd.dev.cosign.simplesigning.v1+json"
	ciIssuer    = "https://ci.example.test"
	ciSubject   = "release@example.test"
)

// ok returns a function that returns its first argument. The function fails the test if its second argument is an
// error.
func ok[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// signer creates a signer as the owner.
func (w *world) signer(t *testing.T, parent string, s *ocipb.Signer) *ocipb.Signer {
	t.Helper()
	return must[*ocipb.Signer](t, w.overGRPC, w.Token, &ocipb.CreateSignerRequest{Parent: parent, Signer: s})
}

// signs pushes a signature in the way of cosign: a manifest with the media types of an image, and a tag.
func (w *world) signs(t *testing.T, repo, tag string, payload []byte, annotations map[string]string) string {
	t.Helper()
	for _, blob := range []string{"{}", string(payload)} {
		w.put(t, "POST", repo+"/blobs/uploads/?digest="+digestOf(blob), "application/octet-stream", blob)
	}
	return w.pushManifest(t, repo, tag, manifestType, map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": describe(configType, "{}"),
		"layers": []any{
			map[string]any{
				"mediaType": payloadType, "digest": digestOf(string(payload)), "size": len(payload), "annotations": annotations,
			},
		},
	})
}

// storyKey returns a public key. It returns the same key in each call.
var storyKey = sync.OnceValue(func() string {
	k, err := signaturetest.NewKey("ecdsa")
	if err != nil {
		panic(err)
	}
	return k.PEM()
})

// signTag returns the tag that cosign gives to the signatures of a digest.
func signTag(digest string) string { return strings.Replace(digest, ":", "-", 1) + ".sig" }

// signedWith signs a digest with a key, and pushes the signature as cosign does.
func (w *world) signedWith(t *testing.T, k signaturetest.Key, repo, digest string) {
	t.Helper()
	payload := signaturetest.Payload("host/"+repo, digest)
	w.signs(t, repo, signTag(digest), payload, ok[map[string]string](t)(k.Cosign(payload)))
}

// signersOf returns the names of the signers who signed an image.
func (w *world) signersOf(t *testing.T, call caller, repo, reference string) string {
	t.Helper()
	m := must[*ocipb.Signatures](t, call, w.Token, &ocipb.GetSignaturesRequest{RepoUid: repo, Reference: reference})
	if m.GetVerified() != (len(m.GetSigners()) > 0) {
		t.Errorf("the image is verified, but has no signer: %v", m)
	}
	return strings.Join(m.GetSigners(), " ")
}

// signerAccesses returns, by name, the methods for signers that act on one group.
func (h *hierarchy) signerAccesses(t *testing.T) map[string]access {
	t.Helper()
	key := ok[signaturetest.Key](t)(signaturetest.NewKey("ecdsa")).PEM()
	repo := h.repo(t, h.folder, h.name())
	digest := h.pushImage(t, "dev/folder/"+h.last(t, repo), "v1", "amd64", "a signed layer")
	folder := func(*testing.T) string { return h.folder }
	signer := func(t *testing.T) string {
		return h.signer(t, h.folder, &ocipb.Signer{Name: h.name(), Key: key}).GetUid()
	}
	return map[string]access{
		"CreateSigner": {"policies.policy.create", folder, func(uid string) proto.Message {
			return &ocipb.CreateSignerRequest{Parent: uid, Signer: &ocipb.Signer{Name: h.name(), Key: key}, ValidateOnly: true}
		}},
		"GetSigner": {
			"policies.policy.list", signer, func(uid string) proto.Message { return &ocipb.GetSignerRequest{Uid: uid} },
		},
		"DeleteSigner": {
			"policies.policy.delete", signer, func(uid string) proto.Message { return &ocipb.DeleteSignerRequest{Uid: uid} },
		},
		"GetSignatures": {"repo.list", func(*testing.T) string { return repo }, func(uid string) proto.Message {
			return &ocipb.GetSignaturesRequest{RepoUid: uid, Reference: digest}
		}},
	}
}

// last returns the name of a repo, which is the last part of its path.
func (w *world) last(t *testing.T, repo string) string {
	t.Helper()
	return must[*registrypb.Repo](t, w.overGRPC, w.Token, &registrypb.GetRepoRequest{Uid: repo}).GetName()
}

// signerExamples returns example requests for the methods for signers.
func signerExamples(t *testing.T, w *world, x things) map[string][]example {
	t.Helper()
	k := ok[signaturetest.Key](t)(signaturetest.NewKey("ecdsa"))
	key := string(ok[[]byte](t)(json.Marshal(k.PEM())))
	folder := w.child(t, x.org, "signed")
	repo := w.repo(t, folder, "app")
	digest := w.pushImage(t, "dev/signed/app", "v1", "amd64", "layer")
	s := w.signer(t, folder, &ocipb.Signer{Name: "release", Key: k.PEM()}).GetUid()
	w.signedWith(t, k, "dev/signed/app", digest)
	return map[string][]example{
		"SignersService_CreateSigner": {
			{uid: folder, body: `{"name":"next","key":` + key + `}`}, {uid: folder, body: `{"name":"next"}`, fails: true},
		},
		"SignersService_GetSigner":     {{uid: s}, {uid: folder + "/0123456789abcdef", fails: true}},
		"SignersService_ListSigners":   {{query: "page_size=1&order_by=name"}, {query: "page_size=-1", fails: true}},
		"SignersService_GetSignatures": {{uid: repo, digest: digest}, {uid: repo, digest: digestOf("none"), fails: true}},
		"SignersService_DeleteSigner": {
			{uid: w.signer(t, folder, &ocipb.Signer{Name: "old", Key: k.PEM()}).GetUid()}, {uid: "x", fails: true},
		},
	}
}

// TestSignatures verifies signatures of every form, by keys and by identities. Only the signers of the nearest group
// that has signers count. A signature counts from its push until the signer is deleted.
func TestSignatures(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		folder := w.child(t, string(w.Organization), "folder")
		repo := w.repo(t, folder, "app")
		k := ok[signaturetest.Key](t)(signaturetest.NewKey("ecdsa"))
		team := ok[signaturetest.Key](t)(signaturetest.NewKey("ed25519"))
		s := ok[*signaturetest.Sigstore](t)(signaturetest.NewSigstore())
		classic := w.pushImage(t, "dev/folder/app", "classic", "amd64", "1")
		if got := w.signersOf(t, w.overGRPC, repo, "classic"); got != "" {
			t.Errorf("without signers the image is signed by %q", got)
		}
		release := w.signer(t, string(w.Organization), &ocipb.Signer{Name: "release", Key: k.PEM()})
		w.signer(t, string(w.Organization),
			&ocipb.Signer{
				Name: "ci", Issuer: ciIssuer, SubjectPattern: ".*@example[.]test", TrustedRoot: ok[string](t)(s.Root()),
			})
		w.signedWith(t, k, "dev/folder/app", classic)
		bundled := w.pushImage(t, "dev/folder/app", "bundled", "amd64", "2")
		w.attach(t, "dev/folder/app", "", bundled, signaturetest.BundleType,
			string(ok[[]byte](t)(k.Bundle(signaturetest.Statement(bundled, signaturetest.SignPredicate)))))
		keyless := w.pushImage(t, "dev/folder/app", "keyless", "amd64", "3")
		w.attach(t, "dev/folder/app", "", keyless, signaturetest.BundleType,
			string(ok[[]byte](t)(s.Bundle(ciSubject, ciIssuer, signaturetest.Statement(keyless, signaturetest.SignPredicate),
				signaturetest.Proof{}))))
		older := w.pushImage(t, "dev/folder/app", "older", "amd64", "4")
		payload := signaturetest.Payload("r", older)
		w.signs(t, "dev/folder/app", signTag(older), payload,
			ok[map[string]string](t)(s.Cosign(ciSubject, ciIssuer, payload, signaturetest.Proof{})))
		stranger := w.pushImage(t, "dev/folder/app", "stranger", "amd64", "5")
		w.attach(t, "dev/folder/app", "", stranger, signaturetest.BundleType,
			string(ok[[]byte](t)(s.Bundle("x@example.test.evil", ciIssuer,
				signaturetest.Statement(stranger, signaturetest.SignPredicate), signaturetest.Proof{}))))
		index := w.pushIndex(t, "dev/folder/app", "index", "amd64", "arm64")
		w.signedWith(t, k, "dev/folder/app", index)
		for protocol, call := range w.protocols() {
			for reference, want := range map[string]string{
				"classic": "release", bundled: "release", "keyless": "ci", "older": "ci", "stranger": "",
				"index": "release", "only-amd64": "release",
			} {
				if got := w.signersOf(t, call, repo, reference); got != want {
					t.Errorf("%s over %s: signed by %q, want %q", reference, protocol, got, want)
				}
			}
		}
		m := must[*ocipb.Signatures](t, w.overHTTP, w.Token,
			&ocipb.GetSignaturesRequest{RepoUid: repo, Reference: "stranger"})
		if v := m.GetSignatures(); len(v) != 1 || v[0].GetSubject() != "x@example.test.evil" ||
			v[0].GetProblem() != "its identity is none of the signers" {
			t.Errorf("a signature of a stranger: %v", v)
		}
		sums := must[*ocipb.SummarizeImagesResponse](t, w.overGRPC, w.Token,
			&ocipb.SummarizeImagesRequest{RepoUid: repo, Digests: []string{classic, stranger}})
		if got := sums.GetSummaries(); !slices.Equal(got[0].GetSigners(), []string{"release"}) || got[1].GetSigners() != nil {
			t.Errorf("summaries: %v", got)
		}
		signer := w.signer(t, folder, &ocipb.Signer{Name: "team", Key: team.PEM()})
		if got := w.signersOf(t, w.overGRPC, repo, "classic"); got != "" {
			t.Errorf("the folder has its own signers, but signers of the organization count: %q", got)
		}
		must[proto.Message](t, w.overGRPC, w.Token, &ocipb.DeleteSignerRequest{Uid: signer.GetUid()})
		if got := w.signersOf(t, w.overGRPC, repo, "classic"); got != "release" {
			t.Errorf("after the signer of the folder was deleted: %q", got)
		}
		must[proto.Message](t, w.overGRPC, w.Token, &ocipb.DeleteSignerRequest{Uid: release.GetUid()})
		if got := w.signersOf(t, w.overGRPC, repo, "classic"); got != "" {
			t.Errorf("after the signer was deleted: %q", got)
		}
	})
}

// TestSignerMistakes checks that invalid signers are refused.
func TestSignerMistakes(t *testing.T) {
	t.Parallel()
	w := serve(t, storetest.SQLite(t), server.Config{}, nil)
	org := string(w.Organization)
	key := ok[signaturetest.Key](t)(signaturetest.NewKey("ecdsa")).PEM()
	root := ok[string](t)(ok[*signaturetest.Sigstore](t)(signaturetest.NewSigstore()).Root())
	w.signer(t, org, &ocipb.Signer{Name: "taken", Key: key})
	for name, tt := range map[string]struct {
		s    *ocipb.Signer
		code codes.Code
		want string
	}{
		"nothing": {
			&ocipb.Signer{Name: "a"}, codes.InvalidArgument, "key: a signer has a key, or an issuer and a subject",
		},
		"both": {
			&ocipb.Signer{Name: "a", Key: key, Issuer: ciIssuer, Subject: "s"}, codes.InvalidArgument, "but not both",
		},
		"a name that is taken": {&ocipb.Signer{Name: "taken", Key: key}, codes.AlreadyExists, "taken"},
		"a private key": {
			&ocipb.Signer{Name: "a", Key: "-----BEGIN EC PRIVATE KEY-----\nc2VjcmV0\n-----END EC PRIVATE KEY-----"},
			codes.InvalidArgument, "key: is a private key",
		},
		"an issuer without a subject": {
			&ocipb.Signer{Name: "a", Issuer: ciIssuer, TrustedRoot: root}, codes.InvalidArgument, "subject: is required",
		},
		"no root": {
			&ocipb.Signer{Name: "a", Issuer: ciIssuer, Subject: "s"}, codes.InvalidArgument, "trusted_root: is required",
		},
		"a root that is none": {
			&ocipb.Signer{Name: "a", Issuer: ciIssuer, Subject: "s", TrustedRoot: "{}"}, codes.InvalidArgument,
			"trusted_root: is not a trusted root",
		},
		"a pattern that is none": {
			&ocipb.Signer{Name: "a", Issuer: ciIssuer, SubjectPattern: "(", TrustedRoot: root}, codes.InvalidArgument,
			"subject_pattern: ",
		},
	} {
		for protocol, call := range w.protocols() {
			_, st := call(t, w.Token, &ocipb.CreateSignerRequest{Parent: org, Signer: tt.s})
			if st.Code() != tt.code || !strings.Contains(st.Message(), tt.want) || strings.Contains(st.Message(), "c2VjcmV0") {
				t.Errorf("%s over %s: %v", name, protocol, st)
			}
		}
	}
	bad := &findingspb.CreateRuleRequest{Parent: org, Rule: &findingspb.Rule{Unsigned: true, Fixable: true}}
	if _, st := w.overGRPC(t, w.Token, bad); st.Code() != codes.InvalidArgument {
		t.Errorf("a rule about both: %v", st)
	}
}

// A signingWorld has a rule that images in a folder must be signed with a key of the organization.
type signingWorld struct {
	*hierarchy
	key  signaturetest.Key
	repo string
	rule string
}

func newSigningWorld(t *testing.T, w *world) *signingWorld {
	t.Helper()
	h := newHierarchy(t, w)
	g := &signingWorld{
		hierarchy: h, key: ok[signaturetest.Key](t)(signaturetest.NewKey("ecdsa")), repo: h.repo(t, h.folder, "app"),
	}
	g.rule = h.ruled(t, h.org,
		&findingspb.Rule{Unsigned: true, TargetUid: h.folder, Mode: findingspb.RuleMode_RULE_MODE_ENFORCE}).GetUid()
	return g
}

// pulls pulls an image as the owner and returns the status.
func (g *signingWorld) pulls(t *testing.T, reference string) int {
	t.Helper()
	bearer := g.mint(t, g.Owner, token.Claims{Audience: []string{g.RegistryHost}})
	return g.oci(t, bearer, "GET", "/v2/dev/folder/app/manifests/"+reference, "").status
}

// TestSignatureRule checks that the server immediately refuses pulls of images without a signature by one of the
// required signers, whatever a caller with the right to push tries.
func TestSignatureRule(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		g := newSigningWorld(t, w)
		want := func(when, reference string, status int) {
			t.Helper()
			if got := g.pulls(t, reference); got != status {
				t.Errorf("%s: %d, want %d", when, got, status)
			}
		}
		image := g.pushImage(t, "dev/folder/app", "v1", "amd64", "one")
		g.signedWith(t, g.key, "dev/folder/app", image)
		want("with no signers at all", "v1", http.StatusForbidden)
		release := g.signer(t, g.org, &ocipb.Signer{Name: "release", Key: g.key.PEM()})
		want("signed", "v1", http.StatusOK)
		want("signed, by digest", image, http.StatusOK)
		want("its signature, by its tag", signTag(image), http.StatusOK)
		must[proto.Message](t, g.overGRPC, g.Token, &ocipb.DeleteSignerRequest{Uid: release.GetUid()})
		want("after its signer was deleted", "v1", http.StatusForbidden)
		g.signer(t, g.org, &ocipb.Signer{Name: "release", Key: g.key.PEM()})
		want("with the signer again", "v1", http.StatusOK)

		unsigned := g.pushImage(t, "dev/folder/app", "v2", "amd64", "two")
		want("not signed", "v2", http.StatusForbidden)
		g.attach(t, "dev/folder/app", "", unsigned, signaturetest.BundleType,
			string(ok[[]byte](t)(g.key.Bundle(signaturetest.Statement(unsigned, signaturetest.SignPredicate)))))
		want("as soon as it is signed", "v2", http.StatusOK)

		g.pushImage(t, "dev/folder/app", "v1", "amd64", "moved")
		want("after the tag was moved to an image that is not signed", "v1", http.StatusForbidden)

		index := g.pushIndex(t, "dev/folder/app", "index", "amd64")
		want("an index", "index", http.StatusOK)
		want("an image of an index that is not signed", "only-amd64", http.StatusForbidden)
		g.signedWith(t, g.key, "dev/folder/app", index)
		want("an image of an index that is signed", "only-amd64", http.StatusOK)
		g.attacks(t, image, want)
		g.belowCannotLift(t, want)
	})
}

// attacks checks that a caller who may push to the repo, but has no key of a signer, cannot make an unsigned image
// pullable.
func (g *signingWorld) attacks(t *testing.T, signed string, want func(when, reference string, status int)) {
	t.Helper()
	mallory := ok[signaturetest.Key](t)(signaturetest.NewKey("ecdsa"))
	evil := g.pushImage(t, "dev/folder/app", "evil", "amd64", "evil")
	payload := signaturetest.Payload("host/dev/folder/app", signed)
	good := ok[map[string]string](t)(g.key.Cosign(payload))
	g.signs(t, "dev/folder/app", signTag(evil), payload, good)
	want("with the signature of another image", "evil", http.StatusForbidden)
	g.signs(t, "dev/folder/app", signTag(evil), signaturetest.Payload("r", evil), good)
	want("with the signature of another image, and its own payload", "evil", http.StatusForbidden)
	g.signedWith(t, mallory, "dev/folder/app", evil)
	want("with a key that is not a signer's", "evil", http.StatusForbidden)
	g.attach(t, "dev/folder/app", "", evil, signaturetest.BundleType,
		string(ok[[]byte](t)(g.key.Bundle(signaturetest.Statement(signed, signaturetest.SignPredicate)))))
	want("with the bundle of another image", "evil", http.StatusForbidden)
	g.attach(t, "dev/folder/app", "", evil, signaturetest.BundleType,
		string(ok[[]byte](t)(g.key.Bundle(signaturetest.Statement(evil, "https://cosign.sigstore.dev/attestation/vuln/v1")))))
	want("with a report that a signer has signed", "evil", http.StatusForbidden)
	g.attach(t, "dev/folder/app", "", evil, signaturetest.BundleType,
		`{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","verificationMaterial":{}}`)
	want("with a bundle that is none", "evil", http.StatusForbidden)
	list := []descriptor{
		{MediaType: manifestType, Digest: evil, Size: 1}, {MediaType: manifestType, Digest: signed, Size: 1},
	}
	g.pushManifest(t, "dev/folder/app", "mixed", indexType,
		map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": list})
	want("an image of an index that lists one that is signed", evil, http.StatusForbidden)
	g.pushImage(t, "dev/folder/app", signTag(evil), "amd64", "evil")
	want("under the tag of a signature", signTag(evil), http.StatusForbidden)
	want("under the tag of a signature, by digest", evil, http.StatusForbidden)
	// Clients run manifests with these media types like an image.
	layer := describe(layerType, "evil")
	for name, m := range map[string]map[string]any{
		"as an artifact": {
			"mediaType": manifestType, "artifactType": "application/x", "config": describe(configType, "{}"),
		},
		"as about another": {
			"mediaType": manifestType, "config": describe(configType, "{}"),
			"subject": descriptor{MediaType: manifestType, Digest: signed, Size: 1},
		},
		"with a type of octets":     {"mediaType": manifestType, "config": describe("application/octet-stream", "{}")},
		"with a type in upper case": {"mediaType": manifestType, "config": describe(strings.ToUpper(configType), "{}")},
		"without a type":            {"mediaType": manifestType, "config": describe("", "{}")},
		"with layers for signatures": {
			"mediaType": manifestType, "config": describe(configType, "{}"),
			"layers": []descriptor{describe(payloadType, "evil")},
		},
	} {
		m["schemaVersion"] = 2
		if m["layers"] == nil {
			m["layers"] = []descriptor{layer}
		}
		g.pushManifest(t, "dev/folder/app", "odd", manifestType, m)
		want(name, "odd", http.StatusForbidden)
	}
	// Some clients ignore the content type and guess the media type.
	for _, contentType := range []string{"application/json", "text/plain", indexType, "application/x"} {
		g.pushManifest(t, "dev/folder/app", "odd", contentType,
			map[string]any{"schemaVersion": 2, "config": describe(configType, "{}"), "layers": []descriptor{layer}})
		want("as "+contentType, "odd", http.StatusForbidden)
	}
	copied := &ocipb.CopyImagesRequest{GroupUid: g.org, Repo: "out", FromRepoUid: g.repo, References: []string{"evil"}}
	if _, st := g.overGRPC(t, g.Token, copied); st.Code() != codes.FailedPrecondition {
		t.Errorf("a copy to a repo without the rule: %v", st)
	}
	with := &ocipb.CopyImagesRequest{
		GroupUid: g.org, Repo: "out", FromRepoUid: g.repo, References: []string{signed}, WithReferrers: true,
	}
	must[proto.Message](t, g.overGRPC, g.Token, with)
	if got := g.signersOf(t, g.overGRPC, g.repoAt(t, g.org, "out"), signed); got != "release" {
		t.Errorf("the copy is signed by %q", got)
	}
}

// repoAt returns the UID of the repo with this name in a group.
func (w *world) repoAt(t *testing.T, group, name string) string {
	t.Helper()
	for _, r := range must[*registrypb.ListReposResponse](t, w.overGRPC, w.Token,
		&registrypb.ListReposRequest{Name: &name}).GetRepos() {
		if string(resource.UID(r.GetUid()).Parent()) == group {
			return r.GetUid()
		}
	}
	t.Fatalf("there is no repo %s", name)
	return ""
}

// belowCannotLift checks that neither the administrator of the folder nor another organization can add a signer to
// the rule of the organization. It also checks that a caller who is exempt from the rule can pull an unsigned image.
func (g *signingWorld) belowCannotLift(t *testing.T, want func(when, reference string, status int)) {
	t.Helper()
	key := ok[signaturetest.Key](t)(signaturetest.NewKey("ecdsa"))
	image := g.pushImage(t, "dev/folder/app", "own", "amd64", "own")
	g.signedWith(t, key, "dev/folder/app", image)
	for place, bearer := range map[string]string{g.folder: g.full["folder"], g.other: g.full["other"]} {
		must[proto.Message](t, g.overGRPC, bearer,
			&ocipb.CreateSignerRequest{Parent: place, Signer: &ocipb.Signer{Name: "own", Key: key.PEM()}})
		if _, st := g.overGRPC(t, bearer,
			&ocipb.CreateSignerRequest{
				Parent: g.org, Signer: &ocipb.Signer{Name: "own", Key: key.PEM()},
			}); st.Code() != codes.PermissionDenied {
			t.Errorf("a signer above: %v", st)
		}
	}
	if got := g.signersOf(t, g.overGRPC, g.repo, "own"); got != "own" {
		t.Errorf("in its folder it is signed by %q", got)
	}
	want("signed by a signer of the folder", "own", http.StatusForbidden)
	g.drySees(t, image)
	robot := g.robot(t, g.folder, g.name())
	g.bind(t, g.folder, robot, string(resource.ManagedRoleUID("registry.pull")))
	must[proto.Message](t, g.overGRPC, g.Token,
		&findingspb.UpdateRuleRequest{
			Rule: &findingspb.Rule{Uid: g.rule, ExemptUids: []string{robot}}, UpdateMask: mask("exempt_uids"),
		})
	bearer := g.mint(t, resource.UID(robot), token.Claims{Audience: []string{g.RegistryHost}})
	if got := g.oci(t, bearer, "GET", "/v2/dev/folder/app/manifests/own", ""); got.status != http.StatusOK {
		t.Errorf("a pull of an exempt caller: status %d", got.status)
	}
	must[proto.Message](t, g.overGRPC, g.Token,
		&ocipb.UpdateSettingsRequest{Settings: &ocipb.Settings{Uid: g.folder, Public: true}})
	got := g.oci(t, "", "GET", "/v2/dev/folder/app/manifests/own", "")
	if got.status != http.StatusForbidden || !strings.Contains(got.body, "a rule of the organization refuses it") {
		t.Errorf("a stranger: %d %s", got.status, got.body)
	}
}

// drySees checks that a dry run of the rule counts pulls of unsigned images, but not pulls of signatures or of signed
// images.
func (g *signingWorld) drySees(t *testing.T, unsigned string) {
	t.Helper()
	set := func(mode findingspb.RuleMode) {
		t.Helper()
		must[proto.Message](t, g.overGRPC, g.Token,
			&findingspb.UpdateRuleRequest{Rule: &findingspb.Rule{Uid: g.rule, Mode: mode}, UpdateMask: mask("mode")})
	}
	set(findingspb.RuleMode_RULE_MODE_DRY_RUN)
	for range 3 {
		if got := g.pulls(t, "own"); got != http.StatusOK {
			t.Errorf("a rule in a dry run refuses the pull: status %d", got)
		}
	}
	for protocol, call := range g.protocols() {
		procUntil(t, "the pulls are recorded", func() bool {
			m := must[*findingspb.CheckRuleResponse](t, call, g.full["org"], &findingspb.CheckRuleRequest{Uid: g.rule})
			return m.GetPullCount() == 3
		})
		m := must[*findingspb.CheckRuleResponse](t, call, g.full["org"], &findingspb.CheckRuleRequest{Uid: g.rule})
		if m.GetImageCount() != 1 || m.GetPulls()[0].GetDigest() != unsigned ||
			m.GetPulls()[0].GetReason() != "none of the signers has signed it" {
			t.Errorf("checked over %s: %v", protocol, m)
		}
	}
	set(findingspb.RuleMode_RULE_MODE_ENFORCE)
}

// TestSignatureRootOfServer checks that a signer without its own trusted root uses the trusted root in the server's
// settings.
func TestSignatureRootOfServer(t *testing.T) {
	t.Parallel()
	s := ok[*signaturetest.Sigstore](t)(signaturetest.NewSigstore())
	file := t.TempDir() + "/trusted_root.json"
	if err := os.WriteFile(file, []byte(ok[string](t)(s.Root())), 0o600); err != nil {
		t.Fatal(err)
	}
	w := serve(t, storetest.SQLite(t), server.Config{TrustedRoot: file}, nil)
	repo := w.repo(t, string(w.Organization), "app")
	w.signer(t, string(w.Organization), &ocipb.Signer{Name: "ci", Issuer: ciIssuer, Subject: ciSubject})
	for tag, subject := range map[string]string{"good": ciSubject, "bad": ciSubject + "x"} {
		digest := w.pushImage(t, "dev/app", tag, "amd64", tag)
		w.attach(t, "dev/app", "", digest, signaturetest.BundleType,
			string(ok[[]byte](t)(s.Bundle(subject, ciIssuer, signaturetest.Statement(digest, signaturetest.SignPredicate),
				signaturetest.Proof{}))))
	}
	if good, bad := w.signersOf(t, w.overGRPC, repo, "good"), w.signersOf(t, w.overGRPC, repo, "bad"); good != "ci" ||
		bad != "" {
		t.Errorf("signed by %q and %q", good, bad)
	}
}

// TestManySignatures: if an attacker attaches a thousand signatures, then the server verifies only some of them and
// still finds the genuine signature.
func TestManySignatures(t *testing.T) {
	t.Parallel()
	w := serve(t, storetest.SQLite(t), server.Config{}, nil)
	repo := w.repo(t, string(w.Organization), "app")
	k := ok[signaturetest.Key](t)(signaturetest.NewKey("ecdsa"))
	w.signer(t, string(w.Organization), &ocipb.Signer{Name: "release", Key: k.PEM()})
	digest := w.pushImage(t, "dev/app", "v1", "amd64", "layer")
	payload := string(signaturetest.Payload("r", digest))
	for _, blob := range []string{"{}", payload} {
		w.put(t, "POST", "dev/app/blobs/uploads/?digest="+digestOf(blob), "application/octet-stream", blob)
	}
	layer := map[string]any{
		"mediaType": payloadType, "digest": digestOf(payload), "size": len(payload),
		"annotations": map[string]string{"dev.cosignproject.cosign/signature": "AAAA"},
	}
	for range 2 {
		w.attach(t, "dev/app", "", digest, signaturetest.BundleType,
			string(ok[[]byte](t)(k.Bundle(signaturetest.Statement(digest, signaturetest.SignPredicate)))))
		if got := w.signersOf(t, w.overGRPC, repo, "v1"); got != "release" {
			t.Errorf("signed by %q", got)
		}
	}
	w.pushManifest(t, "dev/app", signTag(digest), manifestType, map[string]any{
		"schemaVersion": 2, "mediaType": manifestType,
		"config": describe(configType, "{}"), "layers": slices.Repeat([]any{layer}, 1000),
	})
	m := must[*ocipb.Signatures](t, w.overGRPC, w.Token, &ocipb.GetSignaturesRequest{RepoUid: repo, Reference: "v1"})
	if len(m.GetSignatures()) != 27 || !m.GetVerified() {
		t.Errorf("with a thousand attached signatures: %d signatures, verified: %t", len(m.GetSignatures()), m.GetVerified())
	}
}
