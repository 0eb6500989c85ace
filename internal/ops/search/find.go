package search

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

// A namedKind is a kind that can be found by name.
type namedKind struct {
	kind   Kind
	table  string
	want   resource.Capability // the capability that a caller needs to list the kind
	titled bool                // whether resources of the kind have display names
	self   bool                // whether a resource of the kind has the same UID as its group
}

var namedKinds = []namedKind{
	{Group, "groups", resource.GroupsList, true, true},
	{Repo, "repos", resource.RepoList, false, false},
	{Identity, "identities", resource.IdentityList, true, false},
	{Account, "accounts", resource.IdentityList, false, false}, // the name of an account is an e-mail address
	{Role, "roles", resource.RolesList, false, false},
	{IdentityProvider, "identity_providers", resource.IdentityProvidersList, false, false},
	{AccountAssociation, "account_associations", resource.AccountAssociationsList, false, true},
	{AdvisoryFeed, "advisory_feeds", resource.AdvisoriesList, false, false},
	{Upstream, "registry_upstreams", resource.RegistrySettingsList, false, false},
	{Signer, "signers", resource.PolicyList, false, false},
	{Replication, "replications", resource.RegistrySettingsList, false, false},
}

// byName finds resources whose names begin with a text.
func (s *Service) byName(ctx context.Context, text string) (results []Result, _ error) {
	for _, k := range namedKinds {
		found, err := s.named(ctx, k, "", text)
		if err != nil {
			return nil, err
		}
		results = append(results, found...)
	}
	return results, nil
}

// named finds resources of a kind whose names begin with a text. Unless parent is "", it finds only resources
// directly in that group, which must exist.
func (s *Service) named(
	ctx context.Context, k namedKind, parent resource.UID, text string,
) (results []Result, _ error) {
	under, err := s.authz.Reach(ctx, k.want)
	if err != nil || len(under) == 0 {
		return nil, err
	}
	reach := store.Reach{Under: under}
	if k.kind == Role { // a caller that may list roles in any group may list the managed roles
		for _, r := range authz.ManagedRoles() {
			reach.Also = append(reach.Also, r.UID)
		}
	}
	found, err := s.db.Search(ctx, reach, store.NameSearch{
		Table: k.table, Titled: k.titled, GroupUID: k.self, Text: text, In: parent, Limit: perKind,
	})
	for _, i := range found {
		match := ByNamePrefix
		switch {
		case i.Name == text && k.kind == Account:
			match = ByEmail
		case i.Name == text:
			match = ByName
		}
		results = append(results, result(k.kind, match, i))
	}
	return results, err
}

func result(kind Kind, match Match, i resource.Info) Result {
	r := Result{Kind: kind, Match: match, UID: i.UID, Name: i.Name, DisplayName: i.DisplayName, Parent: i.UID.Parent()}
	if kind == AccountAssociation {
		r.Parent = i.UID // the resource has the same UID as the group that contains it
	}
	return r
}

// pathKinds are the kinds that can be found by their paths.
var pathKinds = namedKinds[:2]

// byPath finds groups and repos whose paths begin with a text. Only the last name in the text may be incomplete. Like
// iam.ResolvePath, byPath does not check whether the caller may list the groups before the last name.
func (s *Service) byPath(ctx context.Context, text string) (results []Result, _ error) {
	path := strings.TrimPrefix(text, "/")
	names := strings.Split(path, "/")
	if len(names) < 2 || len(names) > store.MaxNames || slices.Contains(names[:len(names)-1], "") {
		return nil, nil
	}
	last := names[len(names)-1]
	parents, err := s.db.FindByPath(ctx, "groups", names[:len(names)-1], 1)
	if err != nil || len(parents) == 0 {
		return nil, err
	}
	for _, k := range pathKinds {
		found, err := s.named(ctx, k, parents[0], last)
		if err != nil {
			return nil, err
		}
		for i, r := range found {
			found[i].Match = ByPathPrefix
			if r.Name == last {
				found[i].Match = ByPath
			}
		}
		results = append(results, found...)
	}
	return results, nil
}

// nameless are kinds without names, which can be found by their UIDs.
var nameless = []namedKind{
	{kind: RoleBinding, table: "role_bindings", want: resource.RoleBindingsList},
	{kind: GroupRoleMapping, table: "external_group_role_mappings", want: resource.IdentityProvidersList},
	{kind: GroupInvite, table: "group_invites", want: resource.GroupInvitesList},
	{kind: Exception, table: "exceptions", want: resource.OverrideList},
	{kind: Rule, table: "pull_rules", want: resource.PolicyList},
	{kind: Subscription, table: "subscriptions", want: resource.SubscriptionsList},
	{kind: Delivery, table: "deliveries", want: resource.SubscriptionsList},
}

// lookedUp maps the tables from which iam.LookupNames returns resources to kinds. LookupNames also finds people and
// managed roles.
var lookedUp = map[string]Kind{
	"groups": Group, "repos": Repo, "identities": Identity, "roles": Role, "identity_providers": IdentityProvider,
}

// byUID finds a resource of any kind by its UID.
func (s *Service) byUID(ctx context.Context, text string) (results []Result, _ error) {
	uid, err := resource.ParseUID("query", text)
	if err != nil {
		return nil, nil
	}
	names, err := s.IAM.LookupNames(ctx, []resource.UID{uid})
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		results = append(results, result(lookedUp[n.Kind], ByUID, n.Info))
	}
	for _, k := range namedKinds {
		if _, ok := lookedUp[k.table]; ok || !s.authz.Sees(ctx, k.want, uid) {
			continue
		}
		found, err := s.db.NamesOf(ctx, k.table, k.titled, []resource.UID{uid})
		if err != nil {
			return nil, err
		}
		for _, i := range found {
			results = append(results, result(k.kind, ByUID, i))
		}
	}
	for _, k := range nameless {
		if !s.authz.Sees(ctx, k.want, uid) {
			continue
		}
		has, err := s.db.Has(ctx, k.table, uid)
		if err != nil {
			return nil, err
		}
		if has {
			results = append(results, result(k.kind, ByUID, resource.Info{UID: uid}))
		}
	}
	tag, err := s.Registry.GetTag(ctx, uid)
	if err == nil {
		results = append(results, tagResult(ByUID, tag))
	}
	if err := ignoreAbsent(err); err != nil {
		return nil, err
	}
	a, err := s.Advisory.Get(ctx, uid)
	if err == nil {
		results = append(results, advisoryResult(ByUID, a))
	}
	return results, ignoreAbsent(err)
}

func tagResult(match Match, t registry.Tag) Result {
	r := result(Tag, match, resource.Info{UID: t.UID, Name: t.Name})
	r.Digest = t.Digest
	return r
}

func advisoryResult(match Match, a vuln.Advisory) Result {
	r := result(Advisory, match, resource.Info{UID: a.UID, Name: a.ID})
	r.Description = a.Summary
	return r
}

// minPart is the shortest part of a name or an e-mail address by which people are found, in bytes.
const minPart = 2

// byPerson finds people by any part of their names or e-mail addresses.
func (s *Service) byPerson(ctx context.Context, text string) (results []Result, _ error) {
	if len(text) < minPart {
		return nil, nil
	}
	people, err := s.IAM.ListPeople(ctx, text, page.Params{Size: perKind})
	for _, p := range people.Items {
		match := ByName
		if slices.ContainsFunc(p.Emails, func(email string) bool { return strings.EqualFold(email, text) }) {
			match = ByEmail
		}
		if string(p.UID) != text && !p.AccountOnly { // others find it by its uid, or find its account
			results = append(results,
				result(Identity, match, resource.Info{UID: p.UID, Name: p.Name, DisplayName: p.DisplayName}))
		}
	}
	return results, err
}

// byTag finds tags by their names.
func (s *Service) byTag(ctx context.Context, text string) (results []Result, _ error) {
	if !registry.ValidTag(text) {
		return nil, nil
	}
	under, err := s.authz.Reach(ctx, resource.TagList)
	if err != nil {
		return nil, err
	}
	found, err := s.db.Search(ctx, store.Reach{Under: under}, store.NameSearch{
		Table: "tags", Text: text, Exact: true, Limit: perKind,
	})
	for _, i := range found {
		tag, err := s.Registry.GetTag(ctx, i.UID)
		if err == nil {
			results = append(results, tagResult(ByName, tag))
		}
		if err := ignoreAbsent(err); err != nil { // the tag may have been deleted since the search
			return nil, err
		}
	}
	return results, err
}

// byDigest finds manifests whose digests begin with a text.
func (s *Service) byDigest(ctx context.Context, text string) (results []Result, _ error) {
	found, err := s.Registry.SearchManifests(ctx, text, perKind)
	for _, m := range found {
		results = append(results, Result{
			Kind: Manifest, Match: ByDigest, Name: m.Digest, Digest: m.Digest, Parent: m.Repo,
		})
	}
	return results, err
}

// advisoryID matches a text that may be the ID of an advisory: words and numbers, joined by at least one hyphen.
var advisoryID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@+~]*-[A-Za-z0-9._:/@+~-]*$`)

// byAdvisory finds advisories by their IDs and aliases. The text may be in lower case.
func (s *Service) byAdvisory(ctx context.Context, text string) (results []Result, _ error) {
	if !advisoryID.MatchString(text) || !strings.ContainsAny(text, "0123456789") {
		return nil, nil
	}
	names := slices.Compact([]string{text, strings.ToUpper(text)})
	for _, f := range []vuln.AdvisoryFilter{{IDs: names}, {Aliases: names}, {LegacyIDs: names}} {
		got, err := s.Advisory.List(ctx, f, page.Params{Size: perKind})
		if ignoreAbsent(err) != nil {
			return nil, err
		}
		for _, a := range got.Items {
			results = append(results, advisoryResult(ByAdvisoryID, a))
		}
	}
	return results, nil
}

// byPURL finds packages of images by their package URLs.
func (s *Service) byPURL(ctx context.Context, text string) (results []Result, _ error) {
	if !strings.HasPrefix(text, "pkg:") {
		return nil, nil
	}
	got, err := s.Findings.Search(ctx, text, "", query.Place{}, page.Params{Size: perKind})
	for _, image := range got.Items {
		r := Result{
			Kind: Package, Match: ByPURL, Name: text, Parent: image.Repo, Digest: image.Digest,
			Path: image.Path + "@" + image.Digest,
		}
		if len(image.Packages) > 0 {
			r.Name = image.Packages[0].PURL
		}
		results = append(results, r)
	}
	return results, ignoreAbsent(err)
}

// byRequest finds entries of the audit log by the ID of a request.
func (s *Service) byRequest(ctx context.Context, text string) (results []Result, _ error) {
	events, err := s.Events.AuditRequest(ctx, text, perKind)
	for _, e := range events {
		results = append(results, Result{
			Kind: AuditEntry, Match: ByRequestID, UID: e.Subject, Name: string(e.Type), Parent: e.Group,
			Entry: e.ID, Time: e.Time,
		})
	}
	return results, err
}
