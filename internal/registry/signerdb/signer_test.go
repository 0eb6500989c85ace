package signerdb_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// signersOver returns the names of the signers that are trusted in a group.
func signersOver(t *testing.T, s *registrytest.Store, group resource.UID) (names []string) {
	t.Helper()
	all, err := s.SignersOver(t.Context(), group)
	testkit.Must(t, err)
	for _, v := range all {
		names = append(names, v.Name)
	}
	return names
}

// signerPromises contains a test for each promise in the comments about signers and signatures.
var signerPromises = map[string]func(t *testing.T, s *registrytest.Store){
	"a signer needs its group, and a name of its own": func(t *testing.T, s *registrytest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		none := org.NewChild()
		testkit.WantFault(t, s.InsertSigner(t.Context(), registrytest.NewSigner(none, "a")), fault.NotFound,
			fault.Resource{Type: "group", Name: string(none)})
		registrytest.AddSigner(t, s.SignerStore, org, "a")
		testkit.WantFault(t, s.InsertSigner(t.Context(), registrytest.NewSigner(org, "a")), fault.AlreadyExists,
			fault.Resource{Type: "signer", Name: "a"})
		registrytest.AddSigner(t, s.SignerStore, iamtest.AddGroup(t, s.IAMStore, org, "folder").UID, "a")
		dbtest.WantExact(t, s.DB)
	},
	"a group has no more signers than it may": func(t *testing.T, s *registrytest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		for i := range registry.MaxSigners {
			registrytest.AddSigner(t, s.SignerStore, org, fmt.Sprint(i))
		}
		testkit.WantFault(t, s.InsertSigner(t.Context(), registrytest.NewSigner(org, "more")), fault.FailedPrecondition,
			fault.Resource{})
	},
	"the signers of the nearest group that has any count": func(t *testing.T, s *registrytest.Store) {
		org, rival := iamtest.AddGroup(t, s.IAMStore, "", "org").UID, iamtest.AddGroup(t, s.IAMStore, "", "rival").UID
		folder := iamtest.AddGroup(t, s.IAMStore, org, "folder").UID
		below := iamtest.AddGroup(t, s.IAMStore, folder, "below").UID
		registrytest.AddSigner(t, s.SignerStore, rival, "theirs")
		if got := signersOver(t, s, below); got != nil {
			t.Errorf("without any: %v", got)
		}
		registrytest.AddSigner(t, s.SignerStore, org, "b")
		registrytest.AddSigner(t, s.SignerStore, org, "a")
		registrytest.AddSigner(t, s.SignerStore, iamtest.AddGroup(t, s.IAMStore, org, "sibling").UID, "beside")
		if got := signersOver(t, s, below); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("of the organization: %v", got)
		}
		own := registrytest.AddSigner(t, s.SignerStore, folder, "own")
		if got := signersOver(t, s, below); !slices.Equal(got, []string{"own"}) {
			t.Errorf("of the folder: %v", got)
		}
		if got := signersOver(t, s, org); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("in the organization: %v", got)
		}
		testkit.Must(t, s.DeleteSigner(t.Context(), own.UID))
		if got := signersOver(t, s, below); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("when the folder has none: %v", got)
		}
		stolen := rival + "/" + folder[len(org)+1:]
		if got := signersOver(t, s, stolen); !slices.Equal(got, []string{"theirs"}) {
			t.Errorf("below the segment of another's group: %v", got)
		}
	},
	"a change of signers moves the revision": func(t *testing.T, s *registrytest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		moved := 0
		s.OnRevision(func() { moved++ })
		v := registrytest.AddSigner(t, s.SignerStore, org, "a")
		if moved == 0 {
			t.Error("a new signer does not")
		}
		moved = 0
		testkit.Must(t, s.DeleteSigner(t.Context(), v.UID))
		if moved == 0 {
			t.Error("deleting one does not")
		}
		testkit.WantFault(t, s.DeleteSigner(t.Context(), v.UID), fault.NotFound, fault.Resource{Type: "signer",
			Name: string(v.UID)})
		dbtest.WantExact(t, s.DB)
	},
	"the signers of a group are deleted with it": func(t *testing.T, s *registrytest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		gone, stays := iamtest.AddGroup(t, s.IAMStore, org, "gone").UID, iamtest.AddGroup(t, s.IAMStore, org, "stays").UID
		registrytest.AddSigner(t, s.SignerStore, gone, "a")
		kept := registrytest.AddSigner(t, s.SignerStore, stays, "a")
		testkit.Must(t, s.DeleteGroup(t.Context(), gone, ""))
		testkit.WantSame(t, s.Signer, kept.UID, kept)
		all, err := s.Signers(t.Context(), store.Reach{Under: []resource.UID{org}}, resource.Filter{}, iamtest.ByUID)
		testkit.Must(t, err)
		if all.Total != 1 || len(all.Items) != 1 {
			t.Errorf("%d signers are left, and counted %d", len(all.Items), all.Total)
		}
		dbtest.WantExact(t, s.DB)
	},
	"signatures come the oldest first, without other statements": func(t *testing.T, s *registrytest.Store) {
		repo := registrytest.AddRepo(t, s.RegistryStore, iamtest.AddGroup(t, s.IAMStore, "", "org").UID, "repo")
		image := registrytest.AddImage(t, s.RegistryStore, repo, "v1", "image")
		attach := func(word, artifactType, annotations string) string {
			m := registrytest.NewReferrer(word, image)
			m.ArtifactType, m.Annotations = artifactType, annotations
			now := s.DB.Now().Add(time.Second)
			s.DB.Now = func() time.Time { return now }
			return registrytest.Push(t, s.RegistryStore, repo, m).Digest
		}
		const bundle = "application/vnd.dev.sigstore.bundle.v0.3+json"
		first := attach("z", bundle, `{"dev.sigstore.bundle.predicateType":"https://sign"}`)
		attach("report", bundle, `{"dev.sigstore.bundle.predicateType":"https://report"}`)
		attach("sbom", "application/spdx+json", "")
		second := attach("a", "application/vnd.dev.cosign.artifact.sig.v1+json", "")
		third := attach("b", bundle, "")
		for n, want := range map[int][]string{10: {first, second, third}, 2: {first, second}} {
			all, err := s.SignaturesAbout(t.Context(), repo.UID, image.Digest, "https://sign", 1<<20, n)
			testkit.Must(t, err)
			var got []string
			for _, m := range all {
				got = append(got, m.Digest)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d of them: %v, want %v", n, got, want)
			}
		}
	},
	"indexes that list an image are found if something is attached to them": func(t *testing.T, s *registrytest.Store) {
		repo := registrytest.AddRepo(t, s.RegistryStore, iamtest.AddGroup(t, s.IAMStore, "", "org").UID, "repo")
		image := registrytest.AddImage(t, s.RegistryStore, repo, "v1", "image")
		index := func(word string) registry.Manifest {
			m := registrytest.NewImage(word)
			m.MediaType, m.Needs = "application/vnd.oci.image.index.v1+json", []registry.Need{{Digest: image.Digest,
				Manifest: true}}
			return registrytest.Push(t, s.RegistryStore, repo, m)
		}
		index("bare")
		tagged := index("tagged")
		now := s.DB.Now().Add(time.Second)
		s.DB.Now = func() time.Time { return now }
		referred := index("referred")
		registrytest.AddImage(t, s.RegistryStore, repo, "sha256-"+tagged.Digest[len("sha256:"):]+".sig", "signature")
		registrytest.Push(t, s.RegistryStore, repo, registrytest.NewReferrer("referrer", referred))
		now = now.Add(time.Second)
		outer := registrytest.NewIndex("outer")
		outer.Needs = []registry.Need{{Digest: tagged.Digest, Manifest: true}, {Digest: referred.Digest, Manifest: true}}
		outer = registrytest.Push(t, s.RegistryStore, repo, outer)
		registrytest.Push(t, s.RegistryStore, repo, registrytest.NewReferrer("of the outer index", outer))
		got, err := s.SignedIndexes(t.Context(), repo.UID, image.Digest, 10)
		testkit.Must(t, err)
		if want := []string{tagged.Digest, referred.Digest, outer.Digest}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	},
}

func TestSignerPromises(t *testing.T) {
	for name, promise := range signerPromises {
		t.Run(name, func(t *testing.T) { registrytest.Each(t, promise) })
	}
}
