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
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// A namedKind is a kind that is found by name.
type namedKind struct {
	kind   Kind
	table  string
	want   resource.Capability // to list it
	titled bool                // it has display names
	self   bool                // it has the UIDs of groups
}

var namedKinds = []namedKind{
	{Group, "groups", resource.GroupsList, true, true},
	{Repo, "repos", resource.RepoList, false, false},
	{Identity, "identities", resource.IdentityList, true, false},
	{Account, "accounts", resource.IdentityList, false, false}, // its name is an e-mail address
	{Role, "roles", resource.RolesList, false, false},
	{IdentityProvider, "identity_providers", resource.IdentityProvidersList, false, false},
	{AccountAssociation, "account_associations", resource.AccountAssociationsList, false, true},
	{AdvisoryFeed, "advisory_feeds", resource.AdvisoriesList, false, false},
	{Upstream, "registry_upstreams", resource.RegistrySettingsList, false, false},
	{Signer, "signers", resource.PolicyList, false, false},
}

// byName finds resources by their names, or the beginnings of these.
func (s *Service) byName(ctx context.Context, text string) (all []Result, _ error) {
	for _, k := range namedKinds {
		some, err := s.named(ctx, k, "", text)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// named finds resources of a kind by the beginnings of their names, anywhere or directly in a group, which exists.
func (s *Service) named(ctx context.Context, k namedKind, in resource.UID, text string) (all []Result, _ error) {
	under, err := s.authz.Reach(ctx, k.want)
	if err != nil || len(under) == 0 {
		return nil, err
	}
	reach := store.Reach{Under: under}
	if k.kind == Role { // whoever may list roles anywhere may list the managed ones
		for _, r := range authz.ManagedRoles() {
			reach.Also = append(reach.Also, r.UID)
		}
	}
	found, err := s.db.Search(ctx, reach, store.NameSearch{
		Table: k.table, Titled: k.titled, GroupUID: k.self, Text: text, In: in, Limit: perKind,
	})
	for _, i := range found {
		match := ByNamePrefix
		switch {
		case i.Name == text && k.kind == Account:
			match = ByEmail
		case i.Name == text:
			match = ByName
		}
		all = append(all, result(k.kind, match, i))
	}
	return all, err
}

func result(kind Kind, match Match, i resource.Info) Result {
	r := Result{Kind: kind, Match: match, UID: i.UID, Name: i.Name, DisplayName: i.DisplayName, Parent: i.UID.Parent()}
	if kind == AccountAssociation {
		r.Parent = i.UID // it has the UID of its group
	}
	return r
}

// pathKinds are the kinds that are found by their paths.
var pathKinds = namedKinds[:2]

// byPath finds groups and repos by their paths. The last name of a path may be the beginning of one. As for
// iam.ResolvePath, the names before it are not checked.
func (s *Service) byPath(ctx context.Context, text string) (all []Result, _ error) {
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
		some, err := s.named(ctx, k, parents[0], last)
		if err != nil {
			return nil, err
		}
		for i, r := range some {
			some[i].Match = ByPathPrefix
			if r.Name == last {
				some[i].Match = ByPath
			}
		}
		all = append(all, some...)
	}
	return all, nil
}

// nameless are further kinds that are found by their UIDs.
var nameless = []namedKind{
	{kind: RoleBinding, table: "role_bindings", want: resource.RoleBindingsList},
	{kind: GroupRoleMapping, table: "external_group_role_mappings", want: resource.IdentityProvidersList},
	{kind: GroupInvite, table: "group_invites", want: resource.GroupInvitesList},
	{kind: Exception, table: "exceptions", want: resource.OverrideList},
	{kind: Rule, table: "pull_rules", want: resource.PolicyList},
	{kind: Subscription, table: "subscriptions", want: resource.SubscriptionsList},
	{kind: Delivery, table: "deliveries", want: resource.SubscriptionsList},
}

// lookedUp are the kinds that iam.LookupNames finds, which knows about people and managed roles.
var lookedUp = map[string]Kind{
	"groups": Group, "repos": Repo, "identities": Identity, "roles": Role, "identity_providers": IdentityProvider,
}

// byUID finds resources of all kinds by their UIDs.
func (s *Service) byUID(ctx context.Context, text string) (all []Result, _ error) {
	uid, err := resource.ParseUID("query", text)
	if err != nil {
		return nil, nil
	}
	names, err := s.IAM.LookupNames(ctx, []resource.UID{uid})
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		all = append(all, result(lookedUp[n.Kind], ByUID, n.Info))
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
			all = append(all, result(k.kind, ByUID, i))
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
			all = append(all, result(k.kind, ByUID, resource.Info{UID: uid}))
		}
	}
	tag, err := s.Registry.GetTag(ctx, uid)
	if err == nil {
		all = append(all, tagResult(ByUID, tag))
	}
	if err := nothing(err); err != nil {
		return nil, err
	}
	a, err := s.Advisory.Get(ctx, uid)
	if err == nil {
		all = append(all, advisoryResult(ByUID, a))
	}
	return all, nothing(err)
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

// byEmail finds people by their e-mail addresses.
func (s *Service) byEmail(ctx context.Context, text string) (all []Result, _ error) {
	if !strings.Contains(text, "@") {
		return nil, nil
	}
	people, err := s.IAM.PeopleByEmail(ctx, text, perKind)
	for _, i := range people {
		all = append(all, result(Identity, ByEmail, i))
	}
	return all, err
}

// byTag finds tags by their names.
func (s *Service) byTag(ctx context.Context, text string) (all []Result, _ error) {
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
			all = append(all, tagResult(ByName, tag))
		}
		if err := nothing(err); err != nil { // it may have gone since
			return nil, err
		}
	}
	return all, err
}

// byDigest finds manifests by their digests, or the beginnings of these.
func (s *Service) byDigest(ctx context.Context, text string) (all []Result, _ error) {
	found, err := s.Registry.SearchManifests(ctx, text, perKind)
	for _, m := range found {
		all = append(all, Result{Kind: Manifest, Match: ByDigest, Name: m.Digest, Digest: m.Digest, Parent: m.Repo})
	}
	return all, err
}

// advisoryID matches what may be the ID of an advisory: words and numbers with a hyphen or more between.
var advisoryID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@+~]*-[A-Za-z0-9._:/@+~-]*$`)

// byAdvisory finds advisories by their IDs and aliases, which may be written in lower case.
func (s *Service) byAdvisory(ctx context.Context, text string) (all []Result, _ error) {
	if !advisoryID.MatchString(text) || !strings.ContainsAny(text, "0123456789") {
		return nil, nil
	}
	names := slices.Compact([]string{text, strings.ToUpper(text)})
	for _, f := range []vuln.AdvisoryFilter{{IDs: names}, {Aliases: names}, {LegacyIDs: names}} {
		got, err := s.Advisory.List(ctx, f, page.Params{Size: perKind})
		if nothing(err) != nil {
			return nil, err
		}
		for _, a := range got.Items {
			all = append(all, advisoryResult(ByAdvisoryID, a))
		}
	}
	return all, nil
}

// byPURL finds packages of images by their package URLs.
func (s *Service) byPURL(ctx context.Context, text string) (all []Result, _ error) {
	if !strings.HasPrefix(text, "pkg:") {
		return nil, nil
	}
	got, err := s.Findings.Search(ctx, text, "", finding.Place{}, page.Params{Size: perKind})
	for _, image := range got.Items {
		r := Result{
			Kind: Package, Match: ByPURL, Name: text, Parent: image.Repo, Digest: image.Digest,
			Path: image.Path + "@" + image.Digest,
		}
		if len(image.Packages) > 0 {
			r.Name = image.Packages[0].PURL
		}
		all = append(all, r)
	}
	return all, nothing(err)
}

// byRequest finds entries of the audit log by the ids of requests.
func (s *Service) byRequest(ctx context.Context, text string) (all []Result, _ error) {
	events, err := s.Events.AuditRequest(ctx, text, perKind)
	for _, e := range events {
		all = append(all, Result{
			Kind: AuditEntry, Match: ByRequestID, UID: e.Subject, Name: string(e.Type), Parent: e.Group, Entry: e.ID, Time: e.Time,
		})
	}
	return all, err
}
