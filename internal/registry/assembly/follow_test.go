package assembly_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/registry/images"
	"github.com/holdfast-dev/holdfast/internal/registry/metadata"
	"github.com/holdfast-dev/holdfast/internal/registry/protocol"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A followRig has two repos: acme/team/app, and acme/prod/copy, which syncs from it as the identity with the role
// registry.push.
type followRig struct {
	*rig
	service      *metadata.Service
	prod         resource.Group
	source, copy registry.Repo
}

func newFollowRig(t *testing.T, s *storetest.Store, cfg assembly.Config) *followRig {
	t.Helper()
	cfg.KeepTrash, cfg.Log = time.Hour, slog.New(slog.NewTextHandler(t.Output(), nil))
	r := &followRig{rig: newRig(t, s, cfg)}
	r.service = r.Metadata(page.NewTokens([]byte(strings.Repeat("k", 32)), s.Now))
	r.pushImage(t, "acme/team/app", "v1", "first")
	r.source = r.repo(t, "acme/team/app")
	var err error
	r.prod = r.group(t, r.org.UID, "prod")
	r.copy, err = r.service.CreateRepo(r.as(t, "registry.push"), r.prod.UID, following("copy", "acme/team/app"))
	must(t, err)
	return r
}

func following(name, source string) registry.Repo {
	return registry.Repo{Name: name, Sync: &registry.SyncConfig{Source: source}}
}

func (r *followRig) as(t *testing.T, role string) context.Context {
	return resource.WithActor(authz.WithCaller(t.Context(), authz.Caller{Identity: r.uids[role]}),
		resource.Actor{Subject: r.uids[role]})
}

func (r *rig) repo(t *testing.T, path string) registry.Repo {
	t.Helper()
	uid, err := r.store.RepoAt(t.Context(), strings.Split(path, "/"))
	must(t, err)
	repo, err := r.store.Repo(t.Context(), uid)
	must(t, err)
	return repo
}

// tags returns the tags of a repo, with the digests that they point to.
func (r *rig) tags(t *testing.T, repo resource.UID) map[string]string {
	t.Helper()
	all := map[string]string{}
	names, err := r.store.TagNames(t.Context(), repo, "", 10_000)
	must(t, err)
	for _, name := range names {
		tag, err := r.store.TagNamed(t.Context(), repo, name)
		if errors.Is(err, fault.NotFound) { // the tag was deleted since TagNames was called
			continue
		}
		must(t, err)
		all[name] = tag.Digest
	}
	return all
}

// run makes a sync of every repo with a source due, and runs the syncs.
func (r *followRig) run(t *testing.T) {
	t.Helper()
	must(t, r.store.TellFollowers(t.Context(), nil, 1))
	_, _, err := r.Sync.RunDue(t.Context())
	must(t, err)
}

// equal runs all syncs. It checks that the copy has the same tags as the source, and that all of them can be pulled.
func (r *followRig) equal(t *testing.T) {
	t.Helper()
	r.run(t)
	r.stands(t, registry.FollowEqual, "")
	if diff := cmp.Diff(r.tags(t, r.source.UID), r.tags(t, r.copy.UID)); diff != "" {
		t.Fatalf("tags of the source and of the copy:\n%s", diff)
	}
	for tag := range r.tags(t, r.copy.UID) {
		r.pullWhole(t, "acme/prod/copy", tag)
	}
}

// pullWhole pulls a manifest and everything that it refers to.
func (r *followRig) pullWhole(t *testing.T, repo, reference string) {
	t.Helper()
	got := r.want(t, call{method: "GET", path: "/v2/" + repo + "/manifests/" + reference, who: "owner"}, http.StatusOK)
	var m struct {
		Manifests, Layers []ocispec.Descriptor
		Config            ocispec.Descriptor
	}
	must(t, json.Unmarshal(got.body, &m))
	for _, child := range m.Manifests {
		r.pullWhole(t, repo, string(child.Digest))
	}
	for _, b := range append(m.Layers, m.Config) {
		if b.Digest != "" {
			r.want(t, call{method: "GET", path: "/v2/" + repo + "/blobs/" + string(b.Digest), who: "owner"}, http.StatusOK)
		}
	}
}

func (r *followRig) stands(t *testing.T, want registry.FollowState, why string) registry.Follow {
	t.Helper()
	f, err := r.service.GetFollow(r.as(t, "owner"), r.copy.UID)
	if err != nil || f.State != want || !strings.Contains(f.Error, why) {
		t.Fatalf("the copy stands %+v, %v, want %d %q", f, err, want, why)
	}
	return f
}

func (r *followRig) deleteTag(t *testing.T, tag string) {
	t.Helper()
	r.want(t, call{method: "DELETE", path: "/v2/acme/team/app/manifests/" + tag, who: "owner"}, http.StatusAccepted)
}

// setSource sets the source of the copy as the identity with a role. If source is "", it removes the source.
func (r *followRig) setSource(t *testing.T, role, source string) error {
	_, err := r.service.UpdateRepo(r.as(t, role), r.copy.UID, func(repo *registry.Repo) error {
		if repo.Sync = nil; source != "" {
			repo.Sync = &registry.SyncConfig{Source: source}
		}
		return nil
	})
	return err
}

// TestFollow checks that tags of the source are copied to the repo that syncs from it, and that deleted tags go to
// the trash.
func TestFollow(t *testing.T) {
	t.Parallel()
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		r := newFollowRig(t, s, assembly.Config{})
		r.stands(t, registry.FollowQueued, "")
		r.equal(t)

		amd, arm := r.pushImage(t, "acme/team/app", "", "amd"), r.pushImage(t, "acme/team/app", "", "arm")
		index := r.pushIndex(t, "acme/team/app", "multi", amd, arm)
		r.pushImage(t, "acme/team/app", "v1", "moved")
		signed := r.pushImage(t, "acme/team/app", "signed", "signed")
		signature := r.attach(t, "acme/team/app", signed, "a signature")
		r.pushImage(t, "acme/team/app", strings.Replace(sha(signed), ":", "-", 1)+".sig", "a signature by its tag")
		r.equal(t)
		r.pullWhole(t, "acme/prod/copy", sha(index))
		r.pullWhole(t, "acme/prod/copy", sha(signature))

		late := r.attach(t, "acme/team/app", amd, "attached later, to a child")
		r.equal(t)
		r.pullWhole(t, "acme/prod/copy", sha(late))

		r.deleteTag(t, "v1")
		r.want(t, call{method: "DELETE", path: "/v2/acme/team/app/manifests/" + sha(index), who: "owner"},
			http.StatusAccepted)
		r.equal(t)
		got, err := r.service.ListTrash(r.as(t, "owner"),
			resource.Filter{UIDs: resource.UIDFilter{DescendantsOf: r.copy.UID}}, page.Params{})
		if err != nil || len(got.Items) != 2 || got.Items[0].By != r.uids["registry.push"] {
			t.Errorf("trash = %+v, %v", got.Items, err)
		}
		if f := r.stands(t, registry.FollowEqual, ""); f.Tags != 2 || f.Identity != r.uids["registry.push"] ||
			f.Source != r.source.UID {
			t.Errorf("it stands %+v", f)
		}
		// The sync acts as the identity that set the source. That identity is also the actor in the history of tags.
		moves, err := r.service.TagHistory(r.as(t, "owner"), r.copy.UID, "signed", page.Params{})
		if err != nil || moves.Items[0].Actor.Subject != r.uids["registry.push"] {
			t.Errorf("moves = %+v, %v", moves.Items, err)
		}
	})
}

// pushIndex pushes an index that lists existing images, and returns it.
func (r *rig) pushIndex(t *testing.T, repo, tag string, images ...[]byte) []byte {
	t.Helper()
	index := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex}
	index.SchemaVersion = 2
	for _, m := range images {
		index.Manifests = append(index.Manifests,
			ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digestOf(m), Size: int64(len(m))})
	}
	b, err := json.Marshal(index)
	must(t, err)
	c := r.putting(repo, tag, b)
	c.headers[1] = ocispec.MediaTypeImageIndex
	r.want(t, c, http.StatusCreated)
	return b
}

// attach pushes a referrer of a manifest by its digest, and returns the referrer.
func (r *rig) attach(t *testing.T, repo string, about []byte, content string) []byte {
	t.Helper()
	layer := r.pushBlob(t, repo, []byte(content))
	m := ocispec.Manifest{
		MediaType: ocispec.MediaTypeImageManifest, ArtifactType: "application/x",
		Config: r.pushBlob(t, repo, []byte("{}")),
		Layers: []ocispec.Descriptor{layer}, Subject: &ocispec.Descriptor{
			MediaType: ocispec.MediaTypeImageManifest, Digest: digestOf(about), Size: int64(len(about)),
		},
	}
	m.SchemaVersion = 2
	b, err := json.Marshal(m)
	must(t, err)
	r.want(t, r.putting(repo, sha(b), b), http.StatusCreated)
	return b
}

// TestFollowRefuses checks that the tags of a repo with a source can be changed only by the sync, until the source is
// removed.
func TestFollowRefuses(t *testing.T) {
	t.Parallel()
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		r := newFollowRig(t, s, assembly.Config{})
		r.equal(t)
		m := r.pushImage(t, "acme/prod/copy", "", "by digest")
		r.attach(t, "acme/prod/copy", m, "a signature of our own")
		for name, got := range map[string]answer{
			"push":       r.do(t, r.putting("acme/prod/copy", "v2", m)),
			"by a query": r.do(t, r.putting("acme/prod/copy", sha(m)+"?tag=v2", m)),
			"delete":     r.do(t, call{method: "DELETE", path: "/v2/acme/prod/copy/manifests/v1", who: "owner"}),
			"whole": r.do(t,
				call{method: "DELETE", path: "/v2/acme/prod/copy/manifests/" + r.tags(t, r.copy.UID)["v1"], who: "owner"}),
		} {
			if got.status != http.StatusConflict && got.status != http.StatusMethodNotAllowed || got.code() == "" ||
				strings.Contains(string(got.body), "team") {
				t.Errorf("%s: %d %s", name, got.status, got.body)
			}
		}
		if got := r.do(t,
			call{method: "PUT", path: "/v2/acme/prod/copy/manifests/v2", who: "viewer"}); got.status != http.StatusForbidden {
			t.Errorf("whoever may not push learns nothing: %d %s", got.status, got.body)
		}
		_, err := r.service.CopyImages(r.as(t, "owner"),
			registry.CopyRequest{Group: r.prod.UID, Repo: "copy", From: r.source.UID, References: []string{"v1"}})
		if !errors.Is(err, fault.FailedPrecondition) {
			t.Errorf("copy: %v", err)
		}
		must(t, r.setSource(t, "owner", ""))
		r.want(t, r.putting("acme/prod/copy", "v2", m), http.StatusCreated)
		if _, err := r.service.GetFollow(r.as(t, "owner"), r.copy.UID); !errors.Is(err, fault.FailedPrecondition) {
			t.Errorf("it follows nothing: %v", err)
		}
		r.run(t)
		if got := slices.Sorted(maps.Keys(r.tags(t, r.copy.UID))); !slices.Equal(got, []string{"v1", "v2"}) {
			t.Errorf("tags = %v", got)
		}
	})
}

// TestFollowFails checks for each reason for which a sync can fail that the reason is reported, that the affected
// tags are not copied, and that the sync succeeds once the reason is gone.
func TestFollowFails(t *testing.T) {
	t.Parallel()
	refuse := map[string]bool{}
	var limited bool
	for name, tt := range map[string]struct {
		why     string
		failed  []string
		partial bool // whether tags that are not affected are copied
		spoil   func(t *testing.T, r *followRig)
		mend    func(t *testing.T, r *followRig)
	}{
		"whoever set it may not pull": {"may not pull", nil, false, func(t *testing.T, r *followRig) {
			r.rebind(t, r.prod.UID)
		}, nil},
		"whoever set it may not push": {"may not push", nil, false, func(t *testing.T, r *followRig) {
			r.rebind(t, r.folder.UID)
		}, func(t *testing.T, r *followRig) { must(t, r.setSource(t, "owner", string(r.source.UID))) }},
		"the source is gone": {"source is gone", nil, false, func(t *testing.T, r *followRig) {
			must(t, r.store.DeleteRepo(t.Context(), r.source.UID))
		}, nil},
		"a rule refuses": {
			"a rule refuses", []string{"late"}, true, func(_ *testing.T, _ *followRig) { refuse["late"] = true },
			func(_ *testing.T, _ *followRig) { clear(refuse) },
		},
		"the budget is full": {"budget", nil, false, func(t *testing.T, r *followRig) {
			_, err := r.store.UpdateBudget(t.Context(), resource.Budget{UID: r.org.UID}, resource.Budget{UID: r.org.UID,
				Limits: map[resource.Metric]int64{resource.StoredBytes: r.used(t) + 1}})
			must(t, err)
		}, func(t *testing.T, r *followRig) {
			b, err := r.store.Budget(t.Context(), r.org.UID)
			must(t, err)
			_, err = r.store.UpdateBudget(t.Context(), b,
				resource.Budget{UID: r.org.UID, Limits: map[resource.Metric]int64{resource.StoredBytes: 1 << 40}})
			must(t, err)
		}},
		"there are no pulls left": {"no pulls left", nil, false, func(_ *testing.T, _ *followRig) { limited = true },
			func(_ *testing.T, _ *followRig) { limited = false }},
		"an immutable tag moves": {"immutable", []string{"v1"}, true, func(t *testing.T, r *followRig) {
			r.settings(t, r.prod.UID, func(s *registry.Settings) { s.ImmutableTags = true })
			r.pushImage(t, "acme/team/app", "v1", "moved")
		}, func(t *testing.T, r *followRig) {
			r.settings(t, r.prod.UID, func(s *registry.Settings) { s.ImmutableTags = false })
		}},
		"an immutable tag goes": {"immutable", []string{"v1"}, true, func(t *testing.T, r *followRig) {
			r.settings(t, r.prod.UID, func(s *registry.Settings) { s.ImmutableTags = true })
			r.deleteTag(t, "v1")
		}, func(t *testing.T, r *followRig) {
			r.settings(t, r.prod.UID, func(s *registry.Settings) { s.ImmutableTags = false })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Story(t, func(t *testing.T, s *storetest.Store) {
				late := sha(nil)
				r := newFollowRig(t, s, assembly.Config{
					NewGate: func(*images.Reader) protocol.Gate {
						return gateFunc(func(m registry.Manifest) string {
							if refuse["late"] && m.Digest == late {
								return "a secret finding"
							}
							return ""
						})
					},
					CountPull: func(context.Context, resource.UID, bool) error {
						if limited {
							return fault.TooOften(fault.Quota{}, time.Hour)
						}
						return nil
					},
				})
				r.equal(t)
				before := r.tags(t, r.copy.UID)
				late = sha(r.pushImage(t, "acme/team/app", "late", "late"))
				r.pushImage(t, "acme/team/app", "later", "later")
				tt.spoil(t, r)
				r.run(t)
				f := r.stands(t, registry.FollowFailed, tt.why)
				if !slices.Equal(f.FailedTags, tt.failed) || strings.Contains(f.Error, "secret") {
					t.Errorf("it stands %+v", f)
				}
				after := r.tags(t, r.copy.UID)
				if !tt.partial && !maps.Equal(before, after) || tt.partial &&
					(after["later"] == "" || after["v1"] != before["v1"]) {
					t.Errorf("tags before %v, after %v", before, after)
				}
				if tt.mend != nil {
					tt.mend(t, r)
					r.equal(t)
				}
			})
		})
	}
}

// rebind deletes the role bindings of the identity that set the source, and binds its role on the group to instead.
func (r *followRig) rebind(t *testing.T, to resource.UID) {
	t.Helper()
	got, err := r.store.Bindings(t.Context(), store.Reach{Under: []resource.UID{r.org.UID}}, resource.Filter{
		Identity: r.uids["registry.push"],
	},
		page.Request{Size: 10, Order: page.Order{Field: "uid"}})
	must(t, err)
	for _, b := range got.Items {
		must(t, r.store.DeleteBinding(t.Context(), b.UID))
	}
	r.bind(t, r.uids["registry.push"], "registry.push", to)
}

func (r *followRig) used(t *testing.T) int64 {
	t.Helper()
	used, err := r.store.Usage(t.Context(), r.org.UID)
	must(t, err)
	return used[resource.StoredBytes]
}

// TestFollowUnique checks that an existing tag is not moved if the settings demand unique tags, and that the sync
// does not count this as a failure.
func TestFollowUnique(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		r := newFollowRig(t, s, assembly.Config{})
		r.equal(t)
		first := r.tags(t, r.copy.UID)["v1"]
		r.settings(t, r.prod.UID, func(s *registry.Settings) { s.UniqueTags = true })
		r.pushImage(t, "acme/team/app", "v1", "moved")
		r.pushImage(t, "acme/team/app", "v2", "new")
		r.run(t)
		r.stands(t, registry.FollowEqual, "")
		if got := r.tags(t, r.copy.UID); got["v1"] != first || got["v2"] == "" {
			t.Errorf("tags = %v", got)
		}
		r.deleteTag(t, "v1")
		r.equal(t)
	})
}

// TestFollowSetting checks which roles may set a source, and as which identity the sync then acts.
func TestFollowSetting(t *testing.T) {
	t.Parallel()
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		r := newFollowRig(t, s, assembly.Config{})
		source := string(r.source.UID)
		for role, want := range map[string]error{"owner": nil, "registry.push": nil, "editor": fault.PermissionDenied,
			"viewer": fault.PermissionDenied, "stranger": fault.PermissionDenied} {
			if _, err := r.service.CreateRepo(r.as(t, role), r.org.UID,
				following("by-"+strings.ReplaceAll(role, ".", "-"), source)); !errors.Is(err, want) {
				t.Errorf("%s creates a repo that follows: %v, want %v", role, err, want)
			}
		}
		// A caller that may not pull from the source gets the same error as for a source that does not exist.
		other := r.group(t, "", "other")
		r.bind(t, r.uids["stranger"], "owner", other.UID)
		_, hidden := r.service.CreateRepo(r.as(t, "stranger"), other.UID, following("x", source))
		_, none := r.service.CreateRepo(r.as(t, "stranger"), other.UID, following("x", string(r.folder.UID.NewChild())))
		if !errors.Is(hidden, fault.InvalidArgument) || hidden.Error() != none.Error() {
			t.Errorf("hidden: %v, none: %v", hidden, none)
		}
		// Setting the same source again changes the identity of the sync only if the caller may set it.
		must(t, r.setSource(t, "editor", source))
		if f := r.stands(t, registry.FollowQueued, ""); f.Identity != r.uids["registry.push"] {
			t.Errorf("it is done in the name of %s", f.Identity)
		}
		must(t, r.setSource(t, "owner", source))
		if f := r.stands(t, registry.FollowQueued, ""); f.Identity != r.uids["owner"] {
			t.Errorf("it is done in the name of %s", f.Identity)
		}
		// Updates of other fields keep the source.
		_, err := r.service.UpdateRepo(r.as(t, "registry.push"), r.copy.UID, func(repo *registry.Repo) error {
			repo.Description = "new"
			repo.Sync.Google = "gcr.example/x"
			return nil
		})
		must(t, err)
		if f := r.stands(t, registry.FollowQueued, ""); f.Identity != r.uids["owner"] {
			t.Errorf("it is done in the name of %s", f.Identity)
		}
		if f, err := r.service.GetFollow(r.as(t, "registry.pull"), r.copy.UID); err != nil || f.Identity != "" {
			t.Errorf("whoever may not list identities sees %+v, %v", f, err)
		}
		if _, err := r.service.RunFollow(r.as(t, "registry.pull"), r.copy.UID); !errors.Is(err, fault.PermissionDenied) {
			t.Errorf("run: %v", err)
		}
		if err := r.setSource(t, "owner", "acme/prod/copy"); !errors.Is(err, fault.InvalidArgument) {
			t.Errorf("itself: %v", err)
		}
	})
}

// TestFollowMany checks that hundreds of tags and referrers, which need several transactions, are all copied.
func TestFollowMany(t *testing.T) {
	t.Parallel()
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		r := newFollowRig(t, s, assembly.Config{})
		one, two := r.pushImage(t, "acme/team/app", "one", "one"), r.pushImage(t, "acme/team/app", "two", "two")
		for some := range slices.Chunk(numbers(150), 100) {
			r.want(t, r.putting("acme/team/app", sha(one)+"?tag="+strings.Join(some, "&tag="), one), http.StatusCreated)
		}
		config := r.pushBlob(t, "acme/team/app", []byte("{}"))
		for i := range 220 { // too many for one transaction that also copies the images
			r.attachEmpty(t, "acme/team/app", config, [][]byte{one, two}[i%2], fmt.Sprint(i))
		}
		r.equal(t)
		about, err := r.store.Referrers(t.Context(), r.copy.UID, sha(two), "", "", 1000)
		if err != nil || len(about) != 110 {
			t.Errorf("%d are attached, %v", len(about), err)
		}
		for _, tag := range numbers(149) {
			must(t, r.store.DeleteTagNamed(t.Context(), r.source.UID, tag, nil))
		}
		r.equal(t)

		for i := range 100 { // more referrers than one transaction copies
			r.attachEmpty(t, "acme/team/app", config, two, fmt.Sprint("more ", i))
		}
		r.pushImage(t, "acme/team/app", "three", "three")
		r.equal(t) // also copies referrers whose image has not changed
		must(t, r.store.DeleteTagNamed(t.Context(), r.source.UID, "two", nil))
		r.equal(t)
		r.want(t, r.putting("acme/team/app", "again", two), http.StatusCreated)
		r.equal(t)

		anew, err := r.service.CreateRepo(r.as(t, "owner"), r.prod.UID, following("anew", "acme/team/app"))
		must(t, err)
		r.run(t)
		about, err = r.store.Referrers(t.Context(), anew.UID, sha(two), "", "", 1000)
		if err != nil || len(about) != 210 || !maps.Equal(r.tags(t, r.source.UID), r.tags(t, anew.UID)) {
			t.Errorf("%d are attached, %v", len(about), err)
		}
	})
}

// attachEmpty pushes a referrer whose only layer is its config.
func (r *rig) attachEmpty(t *testing.T, repo string, config ocispec.Descriptor, about []byte, note string) {
	t.Helper()
	m := ocispec.Manifest{
		MediaType: ocispec.MediaTypeImageManifest, ArtifactType: "application/x",
		Config: config, Layers: []ocispec.Descriptor{config},
		Annotations: map[string]string{"note": note}, Subject: &ocispec.Descriptor{
			MediaType: ocispec.MediaTypeImageManifest, Digest: digestOf(about), Size: int64(len(about)),
		},
	}
	m.SchemaVersion = 2
	b, err := json.Marshal(m)
	must(t, err)
	r.want(t, r.putting(repo, sha(b), b), http.StatusCreated)
}

func numbers(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("t%03d", i))
	}
	return all
}

// TestFollowRuns runs the syncs of two replicas while the source changes, and checks that the copy, and a repo that
// syncs from the copy, become equal to the source.
func TestFollowRuns(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		r := newFollowRig(t, s, assembly.Config{})
		chained, err := r.service.CreateRepo(r.as(t, "owner"), r.org.UID, following("chained", "acme/prod/copy"))
		must(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		for range 2 {
			running.Go(func() { _ = r.Sync.Run(ctx) })
		}
		for i := range 12 {
			r.pushImage(t, "acme/team/app", fmt.Sprint("v", i%5), fmt.Sprint("layer ", i))
			if i%4 == 3 {
				r.deleteTag(t, fmt.Sprint("v", i%5))
			}
		}
		until(t, "the source, the copy and the copy of the copy have the same tags", func() bool {
			want := r.tags(t, r.source.UID)
			return maps.Equal(want, r.tags(t, r.copy.UID)) && maps.Equal(want, r.tags(t, chained.UID))
		})
	})
}

// TestFollowTurns checks that an organization with many due repos does not delay the repo of another organization.
func TestFollowTurns(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		r := newFollowRig(t, s, assembly.Config{})
		for i := range 30 {
			_, err := r.service.CreateRepo(r.as(t, "owner"), r.prod.UID, following(fmt.Sprint("f", i), "acme/team/app"))
			must(t, err)
		}
		other := r.group(t, "", "other")
		r.bind(t, r.uids["owner"], "owner", other.UID)
		theirs, err := r.service.CreateRepo(r.as(t, "owner"), other.UID, following("theirs", string(r.source.UID)))
		must(t, err)
		_, _, err = r.Sync.RunDue(t.Context())
		must(t, err)
		last, err := r.service.GetFollow(r.as(t, "owner"), theirs.UID)
		must(t, err)
		before := 0
		all, err := r.service.ListFollows(r.as(t, "owner"), r.org.UID, page.Params{Size: 200})
		must(t, err)
		for _, f := range all.Items {
			if f.SuccessTime.Before(last.SuccessTime) {
				before++
			}
		}
		if len(all.Items) != 31 || before > 2 {
			t.Errorf("%d of %d repos of one organization came before the one of another", before, len(all.Items))
		}
	})
}

// A gateFunc is a Gate. It returns the reason for which the pull of a manifest is refused, or "".
type gateFunc func(m registry.Manifest) (why string)

func (f gateFunc) Check(_ context.Context, _ resource.UID, m registry.Manifest, _ bool) (string, error) {
	return f(m), nil
}
