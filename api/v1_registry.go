package api

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/fault"
	registryv1pb "github.com/holdfast-dev/holdfast/gen/registry/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/registry"
	"github.com/holdfast-dev/holdfast/resource"
)

type registryV1 struct {
	registryv1pb.UnsafeRegistryServer
	registry *registry.Service
}

// firstTierV1 is the number of version 1 for the first tier; later versions
// begin at one.
const firstTierV1 = registryv1pb.CatalogTier_APPLICATION - registryv1pb.CatalogTier(registrypb.CatalogTier_CATALOG_TIER_APPLICATION)

func tierV1(t resource.CatalogTier) registryv1pb.CatalogTier {
	if t == 0 {
		return registryv1pb.CatalogTier_UNKNOWN
	}
	return registryv1pb.CatalogTier(t) + firstTierV1
}

func readTierV1(t registryv1pb.CatalogTier) resource.CatalogTier {
	if t == registryv1pb.CatalogTier_UNKNOWN {
		return 0
	}
	return resource.CatalogTier(t - firstTierV1) // a number in between is no tier there either
}

// repoV1 writes a repo without its readme.
func repoV1(r resource.Repo) *registryv1pb.Repo {
	p := &registryv1pb.Repo{
		Id: string(r.UID), Name: r.Name, Description: r.Description, CatalogTier: tierV1(r.Tier),
		Bundles: r.Bundles, Aliases: r.Aliases, ActiveTags: r.ActiveTags, CreateTime: timeOf(r.CreateTime),
	}
	if s := r.Sync; s != nil {
		p.SyncConfig = &registryv1pb.SyncConfig{
			Source: s.Source, UniqueTags: s.UniqueTags, Expiration: timeOf(s.ExpirationTime),
			Google: s.Google, Amazon: s.Amazon, Azure: s.Azure, ApkoOverlay: s.ApkoOverlay, GracePeriod: s.GracePeriod,
		}
	}
	return p
}

func readRepoV1(p *registryv1pb.Repo, r *resource.Repo) error {
	v2 := &registrypb.Repo{Name: p.GetName(), Description: p.GetDescription(), Bundles: p.GetBundles(), Aliases: p.GetAliases(), ActiveTags: p.GetActiveTags()}
	v2.CatalogTier = registrypb.CatalogTier(readTierV1(p.GetCatalogTier()))
	if s := p.GetSyncConfig(); s != nil {
		v2.SyncConfig = &registrypb.SyncConfig{Source: s.GetSource(), Google: s.GetGoogle(), Amazon: s.GetAmazon(), Azure: s.GetAzure()}
	}
	if p.GetCustomOverlay() != nil {
		v2.CustomOverlay = &registrypb.CustomOverlay{}
	}
	return readRepo(v2, r)
}

// CreateRepo is of registryv1pb.RegistryServer.
func (s registryV1) CreateRepo(ctx context.Context, r *registryv1pb.CreateRepoRequest) (*registryv1pb.Repo, error) {
	parent, err := resource.ParseUID("parent_id", r.GetParentId())
	if err != nil {
		return nil, err
	}
	var repo resource.Repo
	if err := readRepoV1(r.GetRepo(), &repo); err != nil {
		return nil, err
	}
	repo, err = s.registry.CreateRepo(ctx, parent, repo)
	if errors.Is(err, fault.AlreadyExists) && !r.GetPreventExisting() {
		return s.replaceNamed(ctx, parent, r.GetRepo(), err)
	}
	if err != nil {
		return nil, err
	}
	return s.withReadme(ctx, repo, r.GetRepo().GetReadme())
}

// replaceNamed replaces the repo of a group that has the name of p. It returns
// exists if it is not the caller's to see.
func (s registryV1) replaceNamed(ctx context.Context, group resource.UID, p *registryv1pb.Repo, exists error) (*registryv1pb.Repo, error) {
	f := resource.Filter{Place: resource.PlaceFilter{ChildrenOf: group}, Name: p.GetName()}
	found, err := s.registry.ListRepos(ctx, f, page.Params{})
	if err != nil {
		return nil, err
	}
	if len(found.Items) == 0 {
		return nil, exists
	}
	return s.replace(ctx, found.Items[0].UID, p)
}

func (s registryV1) replace(ctx context.Context, uid resource.UID, p *registryv1pb.Repo) (*registryv1pb.Repo, error) {
	repo, err := s.registry.UpdateRepo(ctx, uid, func(r *resource.Repo) error { return readRepoV1(p, r) })
	if err != nil {
		return nil, err
	}
	return s.withReadme(ctx, repo, p.GetReadme())
}

// withReadme gives a repo its readme, which is a resource of its own in later
// versions, and returns the two as one.
func (s registryV1) withReadme(ctx context.Context, repo resource.Repo, content string) (*registryv1pb.Repo, error) {
	readme, err := s.registry.GetRepoReadme(ctx, repo.UID)
	if errors.Is(err, fault.PermissionDenied) && content == "" { // may write and not read
		return repoV1(repo), nil
	}
	if err != nil {
		return nil, err
	}
	if readme.Content != content && repo.Sync == nil {
		if readme, err = s.registry.UpdateRepoReadme(ctx, repo.UID, func(r *resource.RepoReadme) error {
			r.Content = content
			return nil
		}); err != nil {
			return nil, err
		}
	}
	p := repoV1(repo)
	p.Readme = readme.Content
	return p, nil
}

// UpdateRepo is of registryv1pb.RegistryServer.
func (s registryV1) UpdateRepo(ctx context.Context, r *registryv1pb.Repo) (*registryv1pb.Repo, error) {
	uid, err := resource.ParseUID("id", r.GetId())
	if err != nil {
		return nil, err
	}
	return s.replace(ctx, uid, r)
}

// ListRepos is of registryv1pb.RegistryServer. Readmes are there where one repo
// is asked for, by its id or its name.
func (s registryV1) ListRepos(ctx context.Context, r *registryv1pb.RepoFilter) (*registryv1pb.RepoList, error) {
	f := resource.Filter{Place: placeV1(r.GetUidp(), r.GetId()), Name: r.GetName()}
	all, err := everything(func(p page.Params) (page.Page[resource.Repo], error) { return s.registry.ListRepos(ctx, f, p) })
	if err != nil {
		return nil, err
	}
	out := &registryv1pb.RepoList{Items: convert(all, repoV1)}
	if len(all) == 1 && (r.GetId() != "" || r.GetName() != "") {
		readme, err := s.registry.GetRepoReadme(ctx, all[0].UID)
		if err != nil {
			return nil, err
		}
		out.Items[0].Readme = readme.Content
	}
	return out, nil
}

// DeleteRepo is of registryv1pb.RegistryServer.
func (s registryV1) DeleteRepo(ctx context.Context, r *registryv1pb.DeleteRepoRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, remove(ctx, "id", r.GetId(), s.registry.DeleteRepo)
}

func tagV1(t resource.Tag) *registryv1pb.Tag {
	return &registryv1pb.Tag{
		Id: string(t.UID), Name: t.Name, Digest: t.Digest, LastUpdated: timeOf(t.UpdateTime), Deprecated: t.Deprecated, Bundles: t.Bundles,
	}
}

func readTagV1(p *registryv1pb.Tag) resource.Tag {
	return resource.Tag{Name: p.GetName(), Digest: p.GetDigest(), Deprecated: p.GetDeprecated(), Bundles: p.GetBundles()}
}

// CreateTag is of registryv1pb.RegistryServer.
func (s registryV1) CreateTag(ctx context.Context, r *registryv1pb.CreateTagRequest) (*registryv1pb.Tag, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	t, err := s.registry.CreateTag(ctx, repo, readTagV1(r.GetTag()))
	if err != nil {
		return nil, err
	}
	return tagV1(t), nil
}

// UpdateTag is of registryv1pb.RegistryServer.
func (s registryV1) UpdateTag(ctx context.Context, r *registryv1pb.Tag) (*registryv1pb.Tag, error) {
	uid, err := resource.ParseUID("id", r.GetId())
	if err != nil {
		return nil, err
	}
	t, err := s.registry.UpdateTag(ctx, uid, readTagV1(r))
	if err != nil {
		return nil, err
	}
	return tagV1(t), nil
}

// DeleteTag is of registryv1pb.RegistryServer.
func (s registryV1) DeleteTag(ctx context.Context, r *registryv1pb.DeleteTagRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, remove(ctx, "id", r.GetId(), s.registry.DeleteTag)
}

// excludes is what a request of version 1 leaves out; later versions say what
// they take in.
type excludes interface {
	GetExcludeReferrers() bool
	GetExcludeDates() bool
	GetExcludeEpochs() bool
}

func classesV1(r excludes) []resource.TagClass {
	left := map[resource.TagClass]bool{
		resource.ReferrerTag: r.GetExcludeReferrers(), resource.DateTag: r.GetExcludeDates(), resource.EpochTag: r.GetExcludeEpochs(),
	}
	all := []resource.TagClass{resource.ReferrerTag, resource.DateTag, resource.EpochTag}
	return slices.DeleteFunc(all, func(c resource.TagClass) bool { return left[c] })
}

// ListTags is of registryv1pb.RegistryServer.
func (s registryV1) ListTags(ctx context.Context, r *registryv1pb.TagFilter) (*registryv1pb.TagList, error) {
	since, err := readTime("updated_since", r.GetUpdatedSince())
	if err != nil {
		return nil, err
	}
	f := resource.Filter{
		Place: placeV1(r.GetUidp(), r.GetId()), Name: r.GetName(), Digest: r.GetDigest(), UpdatedSince: since, Classes: classesV1(r),
	}
	all, err := everything(func(p page.Params) (page.Page[resource.Tag], error) { return s.registry.ListTags(ctx, f, p) })
	if err != nil {
		return nil, err
	}
	return &registryv1pb.TagList{Items: convert(all, tagV1)}, nil
}

// GetRepoTagsSummary is of registryv1pb.RegistryServer. Its latest tag is the one
// of that name, or else the last that moved.
func (s registryV1) GetRepoTagsSummary(ctx context.Context, r *registryv1pb.GetRepoTagsSummaryRequest) (*registryv1pb.RepoTagsSummary, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	if _, err := s.registry.GetRepo(ctx, repo); err != nil {
		return nil, err
	}
	f := resource.Filter{Place: resource.PlaceFilter{ChildrenOf: repo}, Classes: classesV1(r)}
	newest, err := s.registry.ListTags(ctx, f, page.Params{Size: 1, OrderBy: "update_time desc"})
	if err != nil {
		return nil, err
	}
	out := &registryv1pb.RepoTagsSummary{Id: r.GetRepoId(), TagCount: newest.Total}
	if len(newest.Items) == 0 {
		return out, nil
	}
	latest := newest.Items[0]
	out.LastUpdated = timeOf(latest.UpdateTime)
	named, err := s.registry.ListTags(ctx, resource.Filter{Place: f.Place, Name: latestV1}, page.Params{Size: 1})
	if err != nil {
		return nil, err
	}
	if len(named.Items) == 1 {
		latest = named.Items[0]
	}
	out.LatestTag = tagV1(latest)
	f.Digest = latest.Digest
	same, err := s.registry.ListTags(ctx, f, page.Params{Size: page.MaxSize})
	if err != nil {
		return nil, err
	}
	out.LatestVersion = longestName(same.Items)
	return out, nil
}

// longestName is the tag that says most: of those with the same digest, the one
// with the longest name, the first in their order if there are several. What
// moves along with every release says nothing.
func longestName(tags []resource.Tag) (longest string) {
	for _, t := range tags {
		if t.Name == latestV1 || t.Name == latestV1+"-dev" {
			continue
		}
		if len(t.Name) > len(longest) || len(t.Name) == len(longest) && t.Name < longest {
			longest = t.Name
		}
	}
	return longest
}

// ListTagHistory is of registryv1pb.RegistryServer.
func (s registryV1) ListTagHistory(ctx context.Context, r *registryv1pb.TagHistoryFilter) (*registryv1pb.TagHistoryList, error) {
	uid, err := resource.ParseUID("parent_id", r.GetParentId())
	if err != nil {
		return nil, err
	}
	from, err := readTime("start", r.GetStart())
	if err != nil {
		return nil, err
	}
	to, err := readTime("end", r.GetEnd())
	if err != nil {
		return nil, err
	}
	tag, err := s.registry.GetTag(ctx, uid)
	if err != nil {
		return nil, err
	}
	all, err := everything(func(p page.Params) (page.Page[resource.TagMove], error) {
		return s.registry.TagHistory(ctx, uid.Parent(), tag.Name, p)
	})
	if err != nil {
		return nil, err
	}
	out := &registryv1pb.TagHistoryList{}
	for _, m := range all {
		if m.Digest != "" && within(m.Time, from, to) {
			out.Items = append(out.Items, &registryv1pb.TagHistory{UpdateTimestamp: timeOf(m.Time), Digest: m.Digest})
		}
	}
	return out, nil
}

// within tells whether a time is in a span whose ends may be open.
func within(t, from, to time.Time) bool {
	return !t.Before(from) && (to.IsZero() || !t.After(to))
}

// GetArchs is of registryv1pb.RegistryServer.
func (s registryV1) GetArchs(ctx context.Context, r *registryv1pb.ArchRequest) (*registryv1pb.Archs, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	all, err := s.registry.Architectures(ctx, repo, r.GetDigest())
	if err != nil {
		return nil, err
	}
	return &registryv1pb.Archs{Archs: all}, nil
}

// GetSize is of registryv1pb.RegistryServer.
func (s registryV1) GetSize(ctx context.Context, r *registryv1pb.SizeRequest) (*registryv1pb.Size, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	size, architecture, err := s.registry.Size(ctx, repo, r.GetDigest(), r.GetArch())
	if err != nil {
		return nil, err
	}
	return &registryv1pb.Size{Size: size, Arch: architecture}, nil
}
