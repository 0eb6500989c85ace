package v1

import (
	"context"
	"errors"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/registry/v1"
	"github.com/holdfast-dev/holdfast/internal/api/v2/registryapi"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/metadata"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

type registries struct {
	pb.UnsafeRegistryServer
	registry *metadata.Service
	findings *query.Service
}

// firstTier is the difference between the numbers of tiers in version 1 and in later
// versions.
const firstTier = pb.CatalogTier_APPLICATION - 1

var (
	repoWithTierOf   = writer[*pb.Repo](registryapi.RepoOf)
	readRepoWithTier = reader[*pb.Repo](registryapi.ReadRepo)
)

// repoOf converts a repo to a message, without the repo's readme.
func repoOf(r registry.Repo) *pb.Repo {
	p := repoWithTierOf(r)
	p.CatalogTier = pb.CatalogTier_UNKNOWN
	if r.Tier != 0 {
		p.CatalogTier = pb.CatalogTier(r.Tier) + firstTier
	}
	return p
}

func readRepo(p *pb.Repo, r *registry.Repo) error {
	err := readRepoWithTier(p, r)
	r.Tier = 0
	if t := p.GetCatalogTier(); t != pb.CatalogTier_UNKNOWN {
		r.Tier = registry.CatalogTier(t - firstTier) // numbers in between are not tiers in any version
	}
	return err
}

func (s registries) CreateRepo(ctx context.Context, r *pb.CreateRepoRequest) (*pb.Repo, error) {
	parent, err := resource.ParseUID("parent_id", r.GetParentId())
	if err != nil {
		return nil, err
	}
	var repo registry.Repo
	if err := readRepo(r.GetRepo(), &repo); err != nil {
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

// replaceNamed replaces the repo of a group with the name of p. It returns exists if
// the caller may not read the repo.
func (s registries) replaceNamed(ctx context.Context, group resource.UID, p *pb.Repo, exists error) (*pb.Repo, error) {
	f := resource.Filter{UIDs: resource.UIDFilter{ChildrenOf: group}, Name: p.GetName()}
	found, err := s.registry.ListRepos(ctx, f, page.Params{})
	if err != nil {
		return nil, err
	}
	if len(found.Items) == 0 {
		return nil, exists
	}
	return s.replace(ctx, found.Items[0].UID, p)
}

func (s registries) replace(ctx context.Context, uid resource.UID, p *pb.Repo) (*pb.Repo, error) {
	repo, err := s.registry.UpdateRepo(ctx, uid, func(r *registry.Repo) error { return readRepo(p, r) })
	if err != nil {
		return nil, err
	}
	return s.withReadme(ctx, repo, p.GetReadme())
}

// withReadme sets the readme of a repo, which is a separate resource in later versions,
// and returns the repo with its readme as a message.
func (s registries) withReadme(ctx context.Context, repo registry.Repo, content string) (*pb.Repo, error) {
	readme, err := s.registry.GetRepoReadme(ctx, repo.UID)
	if errors.Is(err, fault.PermissionDenied) && content == "" { // the caller may write repos, but not read them
		return repoOf(repo), nil
	}
	if err != nil {
		return nil, err
	}
	if readme.Content != content && repo.Sync == nil {
		if readme, err = s.registry.UpdateRepoReadme(ctx, repo.UID, func(r *registry.RepoReadme) error {
			r.Content = content
			return nil
		}); err != nil {
			return nil, err
		}
	}
	p := repoOf(repo)
	p.Readme = readme.Content
	return p, nil
}

func (s registries) UpdateRepo(ctx context.Context, r *pb.Repo) (*pb.Repo, error) {
	uid, err := resource.ParseUID("id", r.GetId())
	if err != nil {
		return nil, err
	}
	return s.replace(ctx, uid, r)
}

// ListRepos also returns the readme if a request asks for one repo by its ID or name.
func (s registries) ListRepos(ctx context.Context, r *pb.RepoFilter) (*pb.RepoList, error) {
	f := resource.Filter{UIDs: place(r.GetUidp(), r.GetId()), Name: r.GetName()}
	items, err := everything(ctx, f, s.registry.ListRepos, repoOf)
	if err != nil {
		return nil, err
	}
	if len(items) == 1 && (r.GetId() != "" || r.GetName() != "") {
		readme, err := s.registry.GetRepoReadme(ctx, resource.UID(items[0].GetId()))
		if err != nil {
			return nil, err
		}
		items[0].Readme = readme.Content
	}
	return &pb.RepoList{Items: items}, nil
}

func (s registries) DeleteRepo(ctx context.Context, r *pb.DeleteRepoRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "id", r.GetId(), s.registry.DeleteRepo)
}

var (
	tagOf   = writer[*pb.Tag](registryapi.TagOf)
	readTag = reader[*pb.Tag](registryapi.ReadTag)
)

func (s registries) CreateTag(ctx context.Context, r *pb.CreateTagRequest) (*pb.Tag, error) {
	return wire.Create(ctx, "repo_id", r.GetRepoId(), r.GetTag(), readTag, s.registry.CreateOrKeepTag, tagOf)
}

func (s registries) UpdateTag(ctx context.Context, r *pb.Tag) (*pb.Tag, error) {
	return wire.Create(ctx, "id", r.GetId(), r, readTag, s.registry.UpdateTag, tagOf)
}

func (s registries) DeleteTag(ctx context.Context, r *pb.DeleteTagRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "id", r.GetId(), s.registry.DeleteTag)
}

// classesOf returns the classes of tags that a request asks for in addition to plain
// tags. A request of version 1 names the classes to omit.
func classesOf(r interface {
	GetExcludeDates() bool
	GetExcludeEpochs() bool
}, noReferrers bool) (all []resource.TagClass) {
	if !noReferrers {
		all = append(all, resource.ReferrerTag)
	}
	if !r.GetExcludeDates() {
		all = append(all, resource.DateTag)
	}
	if !r.GetExcludeEpochs() {
		all = append(all, resource.EpochTag)
	}
	return all
}

func (s registries) ListTags(ctx context.Context, r *pb.TagFilter) (*pb.TagList, error) {
	since, err := wire.ReadTime("updated_since", r.GetUpdatedSince())
	if err != nil {
		return nil, err
	}
	f := resource.Filter{
		UIDs: place(r.GetUidp(), r.GetId()), Name: r.GetName(), Digest: r.GetDigest(), UpdatedSince: since,
		Classes: classesOf(r, r.GetExcludeReferrers()),
	}
	items, err := everything(ctx, f, s.registry.ListTags, tagOf)
	return &pb.TagList{Items: items}, err
}

// GetRepoTagsSummary returns the tag called latest as the latest tag, or the most
// recently set tag if there is none of that name.
func (s registries) GetRepoTagsSummary(
	ctx context.Context, r *pb.GetRepoTagsSummaryRequest,
) (*pb.RepoTagsSummary, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	if _, err := s.registry.GetRepo(ctx, repo); err != nil {
		return nil, err
	}
	f := resource.Filter{UIDs: resource.UIDFilter{ChildrenOf: repo}, Classes: classesOf(r, r.GetExcludeReferrers())}
	newest, err := s.registry.ListTags(ctx, f, page.Params{Size: 1, OrderBy: "update_time desc"})
	if err != nil {
		return nil, err
	}
	out := &pb.RepoTagsSummary{Id: r.GetRepoId(), TagCount: newest.Total}
	if len(newest.Items) == 0 {
		return out, nil
	}
	tag := newest.Items[0]
	out.LastUpdated = wire.Time(tag.UpdateTime)
	named, err := s.registry.ListTags(ctx, resource.Filter{UIDs: f.UIDs, Name: latest}, page.Params{Size: 1})
	if err != nil {
		return nil, err
	}
	if len(named.Items) == 1 {
		tag = named.Items[0]
	}
	out.LatestTag = tagOf(tag)
	f.Digest = tag.Digest
	tags, err := s.registry.ListTags(ctx, f, page.Params{Size: page.MaxSize})
	if err != nil {
		return nil, err
	}
	out.LatestVersion = longestName(tags.Items)
	return out, nil
}

// longestName returns the longest name of a tag, which is the most specific version. If
// several have that length, it returns the first. It ignores tags that move with every
// release.
func longestName(tags []registry.Tag) (longest string) {
	for _, t := range tags {
		if t.Name == latest || t.Name == latest+"-dev" {
			continue
		}
		if len(t.Name) > len(longest) || len(t.Name) == len(longest) && t.Name < longest {
			longest = t.Name
		}
	}
	return longest
}

func (s registries) ListTagHistory(ctx context.Context, r *pb.TagHistoryFilter) (*pb.TagHistoryList, error) {
	uid, err := resource.ParseUID("parent_id", r.GetParentId())
	if err != nil {
		return nil, err
	}
	from, err := wire.ReadTime("start", r.GetStart())
	if err != nil {
		return nil, err
	}
	to, err := wire.ReadTime("end", r.GetEnd())
	if err != nil {
		return nil, err
	}
	tag, err := s.registry.GetTag(ctx, uid)
	if err != nil {
		return nil, err
	}
	history := func(ctx context.Context, repo resource.UID, p page.Params) (page.Page[registry.TagMove], error) {
		return s.registry.TagHistory(ctx, repo, tag.Name, p)
	}
	moves, err := everything(ctx, uid.Parent(), history, func(m registry.TagMove) registry.TagMove { return m })
	out := &pb.TagHistoryList{}
	for _, m := range moves {
		if m.Digest != "" && !m.Time.Before(from) && (to.IsZero() || !m.Time.After(to)) {
			out.Items = append(out.Items, &pb.TagHistory{UpdateTimestamp: wire.Time(m.Time), Digest: m.Digest})
		}
	}
	return out, err
}

func (s registries) GetArchs(ctx context.Context, r *pb.ArchRequest) (*pb.Archs, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	architectures, err := s.registry.Architectures(ctx, repo, r.GetDigest())
	return &pb.Archs{Archs: architectures}, err
}

func (s registries) GetSize(ctx context.Context, r *pb.SizeRequest) (*pb.Size, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	size, architecture, err := s.registry.Size(ctx, repo, r.GetDigest(), r.GetArch())
	return &pb.Size{Size: size, Arch: architecture}, err
}
