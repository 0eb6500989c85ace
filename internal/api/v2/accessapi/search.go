package accessapi

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/ops/search"
)

func searchResultOf(r search.Result) *accesspb.SearchResult {
	p := &accesspb.SearchResult{
		Kind: accesspb.SearchKind(r.Kind), Match: accesspb.SearchMatch(r.Match), Uid: string(r.UID), Name: r.Name,
		DisplayName: r.DisplayName, Path: r.Path, ParentUid: string(r.Parent), Digest: r.Digest,
		Description: r.Description, EntryId: r.Entry,
	}
	if !r.Time.IsZero() {
		p.Time = timestamppb.New(r.Time)
	}
	return p
}

func (s *server) Search(ctx context.Context, r *accesspb.SearchRequest) (*accesspb.SearchResponse, error) {
	found, err := s.Services.Search.Search(ctx, r.GetQuery(), int(r.GetPageSize()))
	return &accesspb.SearchResponse{Results: wire.Convert(found, searchResultOf)}, err
}

func (s *server) ListPeople(
	ctx context.Context, r *accesspb.ListPeopleRequest,
) (*accesspb.ListPeopleResponse, error) {
	found, err := s.IAM.ListPeople(ctx, r.GetQuery(), wire.Params(r))
	p := wire.PageOf(ctx, found, func(v iam.Person) *accesspb.Person {
		return &accesspb.Person{
			Uid: string(v.UID), Name: v.Name, DisplayName: v.DisplayName, Emails: v.Emails,
			LastSeenTime: wire.Time(v.LastSeen),
		}
	})
	return &accesspb.ListPeopleResponse{
		People: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}

func (s *server) CountChildren(
	ctx context.Context, r *accesspb.CountChildrenRequest,
) (*accesspb.CountChildrenResponse, error) {
	var bad wire.Problems
	var group resource.UID
	if r.GetUid() != "" || r.GetPageToken() == "" { // without a UID, the page token contains it
		group = bad.UID("uid", r.GetUid())
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	in, children, err := s.IAM.CountChildren(ctx, group, wire.Params(r))
	p := wire.PageOf(ctx, children, func(g iam.CountedGroup) *accesspb.CountedGroup {
		return &accesspb.CountedGroup{
			Uid: string(g.UID), Name: g.Name, DisplayName: g.DisplayName, Counts: childCountsOf(g.Counts),
		}
	})
	return &accesspb.CountChildrenResponse{
		Counts: childCountsOf(in), Groups: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}

func childCountsOf(c iam.Counts) *accesspb.ChildCounts {
	return &accesspb.ChildCounts{
		Groups: childCountOf(c.Groups), Repos: childCountOf(c.Repos), Identities: childCountOf(c.Identities),
		Roles:        childCountOf(c.Roles),
		RoleBindings: childCountOf(c.RoleBindings),
	}
}

func childCountOf(c *iam.Count) *accesspb.ChildCount {
	if c == nil {
		return nil
	}
	return &accesspb.ChildCount{Direct: c.Direct, All: c.All}
}
