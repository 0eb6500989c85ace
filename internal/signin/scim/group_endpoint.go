package scim

import (
	"context"
	"net/http"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/document"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/patch"
)

const (
	memberChunk    = 2000    // members that one statement reads
	maxListMembers = 100_000 // members on a page of groups; a page with more has fewer groups
)

// groupUID returns the UID of the team with an id in the directory of a provider.
func groupUID(provider resource.UID, id string) (resource.UID, error) {
	uid := provider + "/" + resource.UID(id)
	if !resource.WellFormed(string(uid)) || uid.Parent() != provider {
		return "", fault.Missing("group", id)
	}
	return uid, nil
}

// serveGroups serves /Groups and /Groups/{id}.
func (s *Service) serveGroups(w http.ResponseWriter, r *http.Request, c client, id string) error {
	if id == "" {
		if err := allow(w, r, http.MethodGet, http.MethodPost); err != nil {
			return err
		}
		if r.Method == http.MethodPost {
			return s.postGroup(w, r, c)
		}
		return s.writeList(w, r, s.groups(c.provider.UID), fromAddress(r))
	}
	if err := allow(w, r, http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete); err != nil {
		return err
	}
	uid, err := groupUID(c.provider.UID, id)
	if err != nil {
		return err
	}
	match := matcher(r.Header.Values("If-Match"))
	switch r.Method {
	case http.MethodGet:
		return s.getGroup(w, r, uid)
	case http.MethodDelete:
		if err := s.deleteGroup(r.Context(), c, uid, match); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return s.writeGroup(w, r, c, uid, match)
}

func (s *Service) getGroup(w http.ResponseWriter, r *http.Request, uid resource.UID) error {
	team, err := s.iam.Team(r.Context(), uid)
	if err != nil {
		return err
	}
	if matcher(r.Header.Values("If-None-Match")).has(team.Version) {
		w.Header().Set("ETag", etagOf(team.Version))
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return s.answerGroup(w, r, http.StatusOK, team)
}

// writeGroup serves PUT and PATCH of a group. The answer to PATCH has no body unless the request selects attributes,
// because directories add the members of a large group with many requests.
func (s *Service) writeGroup(
	w http.ResponseWriter, r *http.Request, c client, uid resource.UID, match matcher,
) error {
	o, err := readBody(r)
	if err != nil {
		return err
	}
	if r.Method == http.MethodPut {
		team, err := s.replaceGroup(r.Context(), c, uid, match, o)
		if err != nil {
			return err
		}
		return s.answerGroup(w, r, http.StatusOK, team)
	}
	operations, err := patch.Parse(o)
	if err != nil {
		return err
	}
	team, err := s.patchGroup(r.Context(), c, uid, match, operations)
	if err != nil {
		return err
	}
	if q := r.URL.Query(); q.Has("attributes") || q.Has("excludedAttributes") {
		return s.answerGroup(w, r, http.StatusOK, team)
	}
	w.Header().Set("ETag", etagOf(team.Version))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Service) postGroup(w http.ResponseWriter, r *http.Request, c client) error {
	o, err := readBody(r)
	if err != nil {
		return err
	}
	team, err := s.createGroup(r.Context(), c, o)
	if err != nil {
		return err
	}
	w.Header().Set("Location", s.Endpoint(c.provider.UID)+"/Groups/"+team.ID())
	return s.answerGroup(w, r, http.StatusCreated, team)
}

// answerGroup writes a team as a resource, with the attributes that the request selects.
func (s *Service) answerGroup(w http.ResponseWriter, r *http.Request, status int, team resource.Team) error {
	p, err := projectionOf(r.URL.Query())
	if err != nil {
		return err
	}
	o := s.renderGroup(team)
	if !p.Excludes(membersAttribute) {
		if err := s.addMembers(r.Context(), team.UID, o); err != nil {
			return err
		}
	}
	w.Header().Set("ETag", etagOf(team.Version))
	return write(w, status, p.Apply(o))
}

// renderGroup returns a team as a resource without its members.
func (s *Service) renderGroup(team resource.Team) document.Object {
	o := make(document.Object, len(team.Attributes)+4)
	for name, v := range team.Attributes {
		o[name] = v
	}
	o["id"] = team.ID()
	o["schemas"] = document.SchemasOf(document.GroupSchema, o)
	o["meta"] = document.Object{
		"resourceType": "Group", "location": s.Endpoint(team.Provider()) + "/Groups/" + team.ID(),
		"version": etagOf(team.Version), "created": team.CreateTime.Format(resource.Milliseconds),
		"lastModified": team.UpdateTime.Format(resource.Milliseconds),
	}
	return o
}

// addMembers adds the members of a team to its resource.
func (s *Service) addMembers(ctx context.Context, team resource.UID, o document.Object) error {
	members := []any{}
	base := s.Endpoint(team.Parent()) + "/Users/"
	for after := ""; ; {
		chunk, err := s.iam.TeamMembers(ctx, team, after, memberChunk)
		if err != nil {
			return err
		}
		for _, member := range chunk {
			m := document.Object{"value": member, "type": "User"}
			if isUserID(member) {
				m["$ref"] = base + member
			}
			members = append(members, m)
		}
		if len(chunk) < memberChunk {
			o[membersAttribute] = members
			return nil
		}
		after = chunk[len(chunk)-1]
	}
}

// groups returns the groups of a directory.
func (s *Service) groups(provider resource.UID) collection {
	render := func(teams []resource.Team, err error) ([]document.Object, error) {
		resources := make([]document.Object, len(teams))
		for i, team := range teams {
			resources[i] = s.renderGroup(team)
		}
		return resources, err
	}
	byID := func(ctx context.Context, id string) ([]document.Object, error) {
		uid, err := groupUID(provider, id)
		if err != nil {
			return nil, nil
		}
		team, err := s.iam.Team(ctx, uid)
		if fault.From(err).Code == fault.NotFound {
			return nil, nil
		}
		return render([]resource.Team{team}, err)
	}
	return collection{
		noun:  "groups",
		total: func(ctx context.Context) (int, error) { return s.iam.TeamCount(ctx, provider) },
		page: func(ctx context.Context, skip, n int) ([]document.Object, error) {
			return render(s.iam.Teams(ctx, provider, skip, n))
		},
		byID: byID,
		keys: []indexed{
			{"displayName", "", func(ctx context.Context, name string) ([]document.Object, error) {
				return render(s.iam.TeamsNamed(ctx, provider, name))
			}},
			{"externalId", "", func(ctx context.Context, id string) ([]document.Object, error) {
				return render(s.iam.TeamsWithExternalID(ctx, provider, id))
			}},
			{"id", "", byID},
			{membersAttribute, "value", func(ctx context.Context, member string) ([]document.Object, error) {
				found, err := render(s.iam.TeamsOfMember(ctx, provider, memberKey(member), maxScan))
				for _, o := range found { // so that the filter matches
					o[membersAttribute] = []any{document.Object{"value": member, "type": "User"}}
				}
				return found, err
			}},
		},
		check: checkGroupQuery,
		complete: func(ctx context.Context, page []document.Object) ([]document.Object, error) {
			return s.completeGroups(ctx, provider, page)
		},
	}
}

// checkGroupQuery returns an error for a query that would have to read the members of all groups.
func checkGroupQuery(q query) error {
	for _, part := range q.filter.Required() {
		if _, ok := part.EqualTo(membersAttribute, "value"); ok && q.filter.Mentions(membersAttribute) == 1 {
			return nil
		}
	}
	if q.filter.Mentions(membersAttribute) > 0 ||
		q.sortBy != nil && strings.EqualFold(q.sortBy.Attribute, membersAttribute) {
		return document.Bad(document.InvalidFilter, `Groups are found by a member only with members.value eq "id".`)
	}
	return nil
}

// completeGroups adds the members to the groups of a page. If they are too many, it leaves out the last groups.
func (s *Service) completeGroups(
	ctx context.Context, provider resource.UID, page []document.Object,
) ([]document.Object, error) {
	total := 0
	for i, o := range page {
		if err := s.addMembers(ctx, provider+"/"+resource.UID(document.Text(o, "id")), o); err != nil {
			return nil, err
		}
		members, _ := o[membersAttribute].([]any)
		if total += len(members); total > maxListMembers && i > 0 {
			return page[:i], nil
		}
	}
	return page, nil
}
