package store_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

func newSigner(group resource.UID, name string) registry.Signer {
	return registry.Signer{UID: group.NewChild(), Name: name, Key: "key", CreateTime: epoch, UpdateTime: epoch}
}

func addSigner(t *testing.T, s *storetest.Store, group resource.UID, name string) registry.Signer {
	t.Helper()
	v := newSigner(group, name)
	must(t, s.InsertSigner(t.Context(), v))
	return v
}

// actsOnSigners returns calls of the methods that write signers.
func (st stage) actsOnSigners() map[string]act {
	none := st.org.UID.NewChild()
	v := newSigner(st.org.UID, "new")
	return map[string]act{
		"InsertSigner": {
			func(ctx context.Context) error { return st.InsertSigner(ctx, v) },
			func(ctx context.Context) error { return st.InsertSigner(ctx, newSigner(none, "new")) },
		},
		"DeleteSigner": {
			func(ctx context.Context) error { return st.DeleteSigner(ctx, st.signer.UID) },
			func(ctx context.Context) error { return st.DeleteSigner(ctx, none) },
		},
	}
}

// signersOver returns the names of the signers that are trusted in a group.
func signersOver(t *testing.T, s *storetest.Store, group resource.UID) (names []string) {
	t.Helper()
	all, err := s.SignersOver(t.Context(), group)
	must(t, err)
	for _, v := range all {
		names = append(names, v.Name)
	}
	return names
}

// signerPromises contains a test for each promise in the comments about signers and signatures.
var signerPromises = map[string]func(t *testing.T, s *storetest.Store){
	"a signer needs its group, and a name of its own": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org").UID
		none := org.NewChild()
		wantFault(t, s.InsertSigner(t.Context(), newSigner(none, "a")), fault.NotFound,
			fault.Resource{Type: "group", Name: string(none)})
		addSigner(t, s, org, "a")
		wantFault(t, s.InsertSigner(t.Context(), newSigner(org, "a")), fault.AlreadyExists,
			fault.Resource{Type: "signer", Name: "a"})
		addSigner(t, s, addGroup(t, s, org, "folder").UID, "a")
		wantExact(t, s)
	},
	"a group has no more signers than it may": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org").UID
		for i := range registry.MaxSigners {
			addSigner(t, s, org, fmt.Sprint(i))
		}
		wantFault(t, s.InsertSigner(t.Context(), newSigner(org, "more")), fault.FailedPrecondition, fault.Resource{})
	},
	"the signers of the nearest group that has any count": func(t *testing.T, s *storetest.Store) {
		org, rival := addGroup(t, s, "", "org").UID, addGroup(t, s, "", "rival").UID
		folder := addGroup(t, s, org, "folder").UID
		below := addGroup(t, s, folder, "below").UID
		addSigner(t, s, rival, "theirs")
		if got := signersOver(t, s, below); got != nil {
			t.Errorf("without any: %v", got)
		}
		addSigner(t, s, org, "b")
		addSigner(t, s, org, "a")
		addSigner(t, s, addGroup(t, s, org, "sibling").UID, "beside")
		if got := signersOver(t, s, below); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("of the organization: %v", got)
		}
		own := addSigner(t, s, folder, "own")
		if got := signersOver(t, s, below); !slices.Equal(got, []string{"own"}) {
			t.Errorf("of the folder: %v", got)
		}
		if got := signersOver(t, s, org); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("in the organization: %v", got)
		}
		must(t, s.DeleteSigner(t.Context(), own.UID))
		if got := signersOver(t, s, below); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("when the folder has none: %v", got)
		}
		stolen := rival + "/" + folder[len(org)+1:]
		if got := signersOver(t, s, stolen); !slices.Equal(got, []string{"theirs"}) {
			t.Errorf("below the segment of another's group: %v", got)
		}
	},
	"a change of signers moves the revision": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org").UID
		moved := 0
		s.OnRevision(func() { moved++ })
		v := addSigner(t, s, org, "a")
		if moved == 0 {
			t.Error("a new signer does not")
		}
		moved = 0
		must(t, s.DeleteSigner(t.Context(), v.UID))
		if moved == 0 {
			t.Error("deleting one does not")
		}
		wantFault(t, s.DeleteSigner(t.Context(), v.UID), fault.NotFound, fault.Resource{Type: "signer", Name: string(v.UID)})
		wantExact(t, s)
	},
	"the signers of a group are deleted with it": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org").UID
		gone, stays := addGroup(t, s, org, "gone").UID, addGroup(t, s, org, "stays").UID
		addSigner(t, s, gone, "a")
		kept := addSigner(t, s, stays, "a")
		must(t, s.DeleteGroup(t.Context(), gone, ""))
		wantSame(t, s.Signer, kept.UID, kept)
		all, err := s.Signers(t.Context(), store.Reach{Under: []resource.UID{org}}, resource.Filter{}, byUID)
		must(t, err)
		if all.Total != 1 || len(all.Items) != 1 {
			t.Errorf("%d signers are left, and counted %d", len(all.Items), all.Total)
		}
		wantExact(t, s)
	},
	"signatures come the oldest first, without other statements": func(t *testing.T, s *storetest.Store) {
		repo := addRepo(t, s, addGroup(t, s, "", "org").UID, "repo")
		image := addImage(t, s, repo, "v1", "image")
		attach := func(word, artifactType, annotations string) string {
			m := referrer(word, image)
			m.ArtifactType, m.Annotations = artifactType, annotations
			now := s.DB.Now().Add(time.Second)
			s.DB.Now = func() time.Time { return now }
			return push(t, s, repo, m).Digest
		}
		const bundle = "application/vnd.dev.sigstore.bundle.v0.3+json"
		first := attach("z", bundle, `{"dev.sigstore.bundle.predicateType":"https://sign"}`)
		attach("report", bundle, `{"dev.sigstore.bundle.predicateType":"https://report"}`)
		attach("sbom", "application/spdx+json", "")
		second := attach("a", "application/vnd.dev.cosign.artifact.sig.v1+json", "")
		third := attach("b", bundle, "")
		for n, want := range map[int][]string{10: {first, second, third}, 2: {first, second}} {
			all, err := s.SignaturesAbout(t.Context(), repo.UID, image.Digest, "https://sign", 1<<20, n)
			must(t, err)
			var got []string
			for _, m := range all {
				got = append(got, m.Digest)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d of them: %v, want %v", n, got, want)
			}
		}
	},
	"indexes that list an image are found if something is attached to them": func(t *testing.T, s *storetest.Store) {
		repo := addRepo(t, s, addGroup(t, s, "", "org").UID, "repo")
		image := addImage(t, s, repo, "v1", "image")
		index := func(word string) registry.Manifest {
			m := newImage(word)
			m.MediaType, m.Needs = "application/vnd.oci.image.index.v1+json", []registry.Need{{Digest: image.Digest,
				Manifest: true}}
			return push(t, s, repo, m)
		}
		index("bare")
		tagged := index("tagged")
		now := s.DB.Now().Add(time.Second)
		s.DB.Now = func() time.Time { return now }
		referred := index("referred")
		addImage(t, s, repo, "sha256-"+tagged.Digest[len("sha256:"):]+".sig", "signature")
		push(t, s, repo, referrer("referrer", referred))
		got, err := s.SignedIndexes(t.Context(), repo.UID, image.Digest, 10)
		must(t, err)
		if !slices.Equal(got, []string{tagged.Digest, referred.Digest}) {
			t.Errorf("%v, want %v", got, []string{tagged.Digest, referred.Digest})
		}
	},
}

func TestSignerPromises(t *testing.T) {
	for name, promise := range signerPromises {
		t.Run(name, func(t *testing.T) { storetest.Each(t, promise) })
	}
}
