package e2e_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/signature/signaturetest"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A hit is an expected search result: its kind, the kind of match, its path, and its UID or digest.
type hit struct {
	query      string
	kind       accesspb.SearchKind
	match      accesspb.SearchMatch
	path, id   string
	capability string // capability that a caller needs to find the result
}

func (h hit) String() string {
	kind, match := h.kind.String()[len("SEARCH_KIND_"):], h.match.String()[len("SEARCH_MATCH_"):]
	return strings.Join([]string{kind, match, h.path, h.id}, " ")
}

// searched returns the results of a search in the form of hit.String.
func searched(t *testing.T, call caller, bearer, query string) (found []string) {
	t.Helper()
	for _, r := range must[*accesspb.SearchResponse](t, call, bearer, &accesspb.SearchRequest{Query: query}).GetResults() {
		id := r.GetUid()
		if id == "" {
			id = r.GetDigest()
		}
		found = append(found, hit{kind: r.GetKind(), match: r.GetMatch(), path: r.GetPath(), id: id}.String())
	}
	return found
}

// hits creates one resource of every kind in the folder and returns the expected hit for each of
// them, and for the image of the gallery.
func (g *gallery) hits(t *testing.T) map[string]hit {
	t.Helper()
	const (
		byUID, byPath, byName = accesspb.SearchMatch_SEARCH_MATCH_UID, accesspb.SearchMatch_SEARCH_MATCH_PATH,
			accesspb.SearchMatch_SEARCH_MATCH_NAME
		byNamePrefix, byPathBegin = accesspb.SearchMatch_SEARCH_MATCH_NAME_PREFIX,
			accesspb.SearchMatch_SEARCH_MATCH_PATH_PREFIX
		byDigest, byAdvisory  = accesspb.SearchMatch_SEARCH_MATCH_DIGEST, accesspb.SearchMatch_SEARCH_MATCH_ADVISORY_ID
		group, repo, identity = accesspb.SearchKind_SEARCH_KIND_GROUP, accesspb.SearchKind_SEARCH_KIND_REPO,
			accesspb.SearchKind_SEARCH_KIND_IDENTITY
		role, idp, tag = accesspb.SearchKind_SEARCH_KIND_ROLE,
			accesspb.SearchKind_SEARCH_KIND_IDENTITY_PROVIDER, accesspb.SearchKind_SEARCH_KIND_TAG
		manifest, feed = accesspb.SearchKind_SEARCH_KIND_MANIFEST, accesspb.SearchKind_SEARCH_KIND_ADVISORY_FEED
		advisory       = accesspb.SearchKind_SEARCH_KIND_ADVISORY
	)
	team := g.child(t, g.folder, "quartz team")
	bot, puller, okta := g.robot(t, g.folder, "quartzbot"), g.role(t, g.folder,
		"quartzrole", someCapabilities...), g.idp(t, g.folder, "quartzidp")
	binding, invite, mapped := g.bind(t, g.folder, bot, g.viewer()), g.invite(t, g.folder), g.mapped(t, okta, "external")
	g.associate(t, team)
	feeds := must[*advisoriespb.AdvisoryFeed](t, g.overGRPC, g.Token, &advisoriespb.CreateAdvisoryFeedRequest{
		Parent: g.folder, Feed: theFeed("quartzfeed"),
	}).GetUid()
	subscription := g.subscribe(t, g.folder)
	exception := g.except(t, g.folder, &findingspb.Exception{AdvisoryId: "GHSA-9"}).GetUid()
	rule := g.ruled(t, g.folder, &findingspb.Rule{}).GetUid()
	key, err := signaturetest.NewKey("ecdsa")
	if err != nil {
		t.Fatal(err)
	}
	upstream := must[*ocipb.Upstream](t, g.overGRPC, g.Token, &ocipb.CreateUpstreamRequest{
		Parent: team, Upstream: &ocipb.Upstream{Name: "quartz.example", Address: "https://quartz.example"},
	}).GetUid()
	copied := g.replication(t, g.folder, "quartz copy")
	signer := g.signer(t, g.folder, &ocipb.Signer{Name: "quartzsigner", Key: key.PEM()}).GetUid()
	v2 := g.tag(t, g.repo, "v2-quartz", g.digest)
	index := g.pushIndex(t, "dev/folder/app", "multi", "arm64")
	g.publish(t, g.folder, osvOf("GHSA-quartz-1", "CVE-2026-4711", "npm", "left", "1.3.0"))
	vuln := must[*accesspb.SearchResponse](t, g.overGRPC, g.Token, &accesspb.SearchRequest{
		Query: "GHSA-quartz-1",
	}).GetResults()[0].GetUid()
	return map[string]hit{
		"a group by uid":  {team, group, byUID, "dev/folder/quartz team", team, "groups.list"},
		"a group by path": {"dev/folder/quartz team", group, byPath, "dev/folder/quartz team", team, "groups.list"},
		"a group by path, with a slash": {
			"/dev/folder/quartz team", group, byPath, "dev/folder/quartz team", team, "groups.list",
		},
		"a group by some of its path": {"dev/folder/quar", group, byPathBegin, "dev/folder/quartz team", team, "groups.list"},
		"a group by name":             {"quartz team", group, byName, "dev/folder/quartz team", team, "groups.list"},
		"a group by some of its name": {"quartz t", group, byNamePrefix, "dev/folder/quartz team", team, "groups.list"},
		"a repo by uid":               {g.repo, repo, byUID, "dev/folder/app", g.repo, "repo.list"},
		"a repo by path":              {"dev/folder/app", repo, byPath, "dev/folder/app", g.repo, "repo.list"},
		"a repo by name":              {"app", repo, byName, "dev/folder/app", g.repo, "repo.list"},
		"a repo by some of its path":  {"dev/folder/ap", repo, byPathBegin, "dev/folder/app", g.repo, "repo.list"},
		"an identity by uid":          {bot, identity, byUID, "dev/folder/quartzbot", bot, "identity.list"},
		"an identity by name":         {"quartzbot", identity, byName, "dev/folder/quartzbot", bot, "identity.list"},
		"a role by uid":               {puller, role, byUID, "dev/folder/quartzrole", puller, "roles.list"},
		"a role by some of its name":  {"quartzr", role, byNamePrefix, "dev/folder/quartzrole", puller, "roles.list"},
		"a provider by name":          {"quartzidp", idp, byName, "dev/folder/quartzidp", okta, "identity_providers.list"},
		"a provider by uid":           {okta, idp, byUID, "dev/folder/quartzidp", okta, "identity_providers.list"},
		"a mapping by uid": {
			mapped, accesspb.SearchKind_SEARCH_KIND_EXTERNAL_GROUP_ROLE_MAPPING, byUID, "", mapped, "identity_providers.list",
		},
		"an association by name": {
			"account", accesspb.SearchKind_SEARCH_KIND_ACCOUNT_ASSOCIATION, byName,
			"dev/folder/quartz team/account", team, "account_associations.list",
		},
		"a binding by uid": {
			binding, accesspb.SearchKind_SEARCH_KIND_ROLE_BINDING, byUID, "dev/folder", binding, "role_bindings.list",
		},
		"an invite by uid": {
			invite, accesspb.SearchKind_SEARCH_KIND_GROUP_INVITE, byUID, "dev/folder", invite, "group_invites.list",
		},
		"a feed by name": {"quartzfeed", feed, byName, "dev/folder/quartzfeed", feeds, "advisories.list"},
		"a feed by uid":  {feeds, feed, byUID, "dev/folder/quartzfeed", feeds, "advisories.list"},
		"a subscription by uid": {
			subscription, accesspb.SearchKind_SEARCH_KIND_SUBSCRIPTION, byUID, "dev/folder", subscription, "subscriptions.list",
		},
		"an exception by uid": {
			exception, accesspb.SearchKind_SEARCH_KIND_EXCEPTION, byUID, "dev/folder", exception, "policies.override.list",
		},
		"a rule by uid": {rule, accesspb.SearchKind_SEARCH_KIND_RULE, byUID, "dev/folder", rule, "policies.policy.list"},
		"an upstream by name": {
			"quartz.example", accesspb.SearchKind_SEARCH_KIND_UPSTREAM, byName,
			"dev/folder/quartz team/quartz.example", upstream, "registry.settings.list",
		},
		"a replication by name": {
			"quartz copy", accesspb.SearchKind_SEARCH_KIND_REPLICATION, byName, "dev/folder/quartz copy", copied,
			"registry.settings.list",
		},
		"a replication by uid": {
			copied, accesspb.SearchKind_SEARCH_KIND_REPLICATION, byUID, "dev/folder/quartz copy", copied,
			"registry.settings.list",
		},
		"an upstream by uid": {
			upstream, accesspb.SearchKind_SEARCH_KIND_UPSTREAM, byUID,
			"dev/folder/quartz team/quartz.example", upstream, "registry.settings.list",
		},
		"a signer by some of its name": {
			"quartzs", accesspb.SearchKind_SEARCH_KIND_SIGNER, byNamePrefix,
			"dev/folder/quartzsigner", signer, "policies.policy.list",
		},
		"a signer by uid": {
			signer, accesspb.SearchKind_SEARCH_KIND_SIGNER, byUID, "dev/folder/quartzsigner", signer, "policies.policy.list",
		},
		"a tag by name": {"v2-quartz", tag, byName, "dev/folder/app:v2-quartz", v2, "tag.list"},
		"a tag by uid":  {v2, tag, byUID, "dev/folder/app:v2-quartz", v2, "tag.list"},
		"an image by digest": {
			g.digest, manifest, byDigest, "dev/folder/app@" + g.digest, g.digest, "manifest.metadata.list",
		},
		"an image by some digits": {
			g.digest[7:15], manifest, byDigest, "dev/folder/app@" + g.digest, g.digest, "manifest.metadata.list",
		},
		"an image by algorithm and some": {
			g.digest[:20], manifest, byDigest, "dev/folder/app@" + g.digest, g.digest, "manifest.metadata.list",
		},
		"an index by some digits": {
			index[7:25], manifest, byDigest, "dev/folder/app@" + index, index, "manifest.metadata.list",
		},
		"an advisory by id":    {"GHSA-quartz-1", advisory, byAdvisory, "dev/folder/GHSA-quartz-1", vuln, "advisories.list"},
		"an advisory by alias": {"CVE-2026-4711", advisory, byAdvisory, "dev/folder/GHSA-quartz-1", vuln, "advisories.list"},
		"an advisory by a small alias": {
			"cve-2026-4711", advisory, byAdvisory, "dev/folder/GHSA-quartz-1", vuln, "advisories.list",
		},
		"an advisory by uid": {vuln, advisory, byUID, "dev/folder/GHSA-quartz-1", vuln, "advisories.list"},
		"a package": {
			"pkg:npm/left", accesspb.SearchKind_SEARCH_KIND_PACKAGE, accesspb.SearchMatch_SEARCH_MATCH_PURL,
			"dev/folder/app@" + g.digest, g.digest, "repo.list",
		},
		"a package of a version": {
			"pkg:npm/left@1.2.0", accesspb.SearchKind_SEARCH_KIND_PACKAGE, accesspb.SearchMatch_SEARCH_MATCH_PURL,
			"dev/folder/app@" + g.digest, g.digest, "repo.list",
		},
	}
}

// TestApiSearch searches for every resource as every caller, over both protocols. A caller must find a resource if
// the caller may list resources of its kind at its place. For other callers the result must be the same as if the
// resource did not exist.
func TestApiSearch(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		g := newGallery(t, url)
		hits := g.hits(t)
		nobody := g.mint(t, resource.UID(g.person()), token.Claims{})
		repos, groups := resource.CapabilitySet("repo.list", "tag.list"), []resource.UID{resource.UID(g.sibling)}
		strangers := map[string]string{
			"on a sibling": g.full["sibling"], "on another organization": g.full["other"], "with nothing": nobody,
			"narrowed to a sibling": g.mint(t, g.Owner, token.Claims{Scopes: groups}),
		}
		for protocol, call := range g.protocols() {
			for _, name := range slices.Sorted(maps.Keys(hits)) {
				t.Run(name+" over "+protocol, func(t *testing.T) { g.searches(t, call, hits[name], strangers) })
			}
			t.Run("narrowed over "+protocol, func(t *testing.T) {
				narrow := g.mint(t, g.Owner, token.Claims{Caps: &repos})
				for name, h := range hits {
					found := slices.Contains(searched(t, call, narrow, h.query), h.String())
					want := h.capability == "repo.list" && h.kind == accesspb.SearchKind_SEARCH_KIND_REPO || h.capability == "tag.list"
					if found != want {
						t.Errorf("%s, with a token for repos and tags: found %t", name, found)
					}
				}
			})
			t.Run("requests over "+protocol, func(t *testing.T) { g.searchesRequests(t, call) })
			t.Run("people over "+protocol, func(t *testing.T) { g.searchesPeople(t, call, strings.ToLower(protocol)) })
			t.Run("limits over "+protocol, func(t *testing.T) { g.searchesMany(t, call, strings.ToLower(protocol)) })
			t.Run("nonsense over "+protocol, func(t *testing.T) { g.searchesNonsense(t, call, nobody) })
		}
	})
}

// searches looks for one resource as callers who may find it, and as callers who may not.
func (g *gallery) searches(t *testing.T, call caller, h hit, strangers map[string]string) {
	for _, who := range []string{"org", "folder"} {
		got := searched(t, call, g.full[who], h.query)
		if len(got) == 0 || got[0] != h.String() {
			t.Errorf("with a grant on the %s: %q, want %s first", who, got, h)
		}
	}
	for who, bearer := range strangers {
		if got := searched(t, call, bearer, h.query); len(got) != 0 {
			t.Errorf("with a grant %s: %q", who, got)
		}
	}
	without := g.lacking[h.capability]
	if without == "" {
		t.Fatalf("no caller lacks %s", h.capability)
	}
	for _, got := range searched(t, call, without, h.query) {
		if strings.HasPrefix(got, strings.TrimPrefix(h.kind.String(), "SEARCH_KIND_")+" ") {
			t.Errorf("without %s: %s", h.capability, got)
		}
	}
	if _, st := call(t, "", &accesspb.SearchRequest{Query: h.query}); st.Code() != codes.Unauthenticated {
		t.Errorf("without a token: %v", st)
	}
}

// searchesRequests checks the search for audit entries by a request ID that requests in two organizations had.
func (g *gallery) searchesRequests(t *testing.T, call caller) {
	request := g.name() + "-request/1"
	make := func(parent string) string {
		ctx := metadata.AppendToOutgoingContext(bearing(t, g.Token), "x-request-id", request)
		m, err := iampb.NewGroupsServiceClient(g.conn).CreateGroup(ctx, &iampb.CreateGroupRequest{
			Parent: parent, Group: &iampb.Group{Name: g.name()},
		})
		if err != nil {
			t.Fatal(err)
		}
		return m.GetUid()
	}
	ours, theirs := make(g.folder), make(g.other)
	entry := func(path, uid string) []string {
		return []string{
			hit{
				kind:  accesspb.SearchKind_SEARCH_KIND_AUDIT_ENTRY,
				match: accesspb.SearchMatch_SEARCH_MATCH_REQUEST_ID,
				path:  path,
				id:    uid,
			}.String(),
		}
	}
	name := func(uid string) string {
		return must[*iampb.Group](t, g.overGRPC, g.Token, &iampb.GetGroupRequest{Uid: uid}).GetName()
	}
	for who, want := range map[string][]string{
		g.full["org"]:              entry("dev/folder/"+name(ours), ours),
		g.full["folder"]:           entry("dev/folder/"+name(ours), ours),
		g.full["other"]:            entry("other/"+name(theirs), theirs),
		g.full["sibling"]:          nil,
		g.lacking["identity.list"]: nil,
		g.lacking["groups.list"]:   nil,
	} {
		if diff := cmp.Diff(want, searched(t, call, who, request)); diff != "" {
			t.Error(diff)
		}
	}
	got := searched(t, call, g.full["org"], request[:5])
	if slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "AUDIT") }) {
		t.Errorf("a prefix of a request ID finds %q", got)
	}
}

// searchesPeople checks the search for people by e-mail address. Two organizations have an account with the same
// address.
func (g *gallery) searchesPeople(t *testing.T, call caller, protocol string) {
	email := "zoe." + protocol + "@people.example"
	made := map[string]*signinpb.Account{}
	for name, org := range map[string]string{"org": g.org, "other": g.other} {
		made[name] = must[*signinpb.CreateAccountResponse](t, g.overGRPC, g.Token, &signinpb.CreateAccountRequest{
			Parent: org, Account: &signinpb.Account{Email: email, Name: "Zoe"},
		}).GetAccount()
	}
	for name, path := range map[string]string{"org": "dev/", "other": "other/"} {
		want := hit{
			kind:  accesspb.SearchKind_SEARCH_KIND_ACCOUNT,
			match: accesspb.SearchMatch_SEARCH_MATCH_EMAIL,
			path:  path + email,
			id:    made[name].GetUid(),
		}
		if got := searched(t, call, g.full[name], email); !slices.Equal(got, []string{want.String()}) {
			t.Errorf("with a grant on %s: %q, want %s", name, got, want)
		}
		want.match = accesspb.SearchMatch_SEARCH_MATCH_NAME_PREFIX
		if got := searched(t, call, g.full[name], email[:8]); !slices.Equal(got, []string{want.String()}) {
			t.Errorf("by a prefix of the address, with a grant on %s: %q, want %s", name, got, want)
		}
		want.match = accesspb.SearchMatch_SEARCH_MATCH_UID
		if got := searched(t, call, g.full[name], made[name].GetUid()); !slices.Equal(got, []string{want.String()}) {
			t.Errorf("by the UID, with a grant on %s: %q, want %s", name, got, want)
		}
	}
	for _, bearer := range []string{g.full["folder"], g.lacking["identity.list"]} {
		for _, query := range []string{email, email[:8], made["org"].GetUid(), made["org"].GetIdentityUid()} {
			if got := searched(t, call, bearer, query); len(got) != 0 {
				t.Errorf("%s: %q", query, got)
			}
		}
	}
	// Once a binding in the folder names the person, callers who can see the folder find the person there.
	g.bind(t, g.folder, made["org"].GetIdentityUid(), g.viewer())
	want := hit{
		kind:  accesspb.SearchKind_SEARCH_KIND_IDENTITY,
		match: accesspb.SearchMatch_SEARCH_MATCH_UID,
		id:    made["org"].GetIdentityUid(),
	}
	got := searched(t, call, g.full["folder"], made["org"].GetIdentityUid())
	if !slices.Equal(got, []string{want.String()}) {
		t.Errorf("by the person's UID: %q, want %s", got, want)
	}
	if got := searched(t, call, g.full["other"], made["org"].GetIdentityUid()); len(got) != 0 {
		t.Errorf("by the UID of a person of another organization: %q", got)
	}
}

// searchesMany checks how many results of each kind a search returns if there are many matches.
func (g *gallery) searchesMany(t *testing.T, call caller, protocol string) {
	text := "many-" + protocol
	for i := range 8 {
		g.child(t, g.folder, fmt.Sprintf("%s-%d", text, i))
		g.robot(t, g.folder, fmt.Sprintf("%s-%d", text, i))
	}
	g.child(t, g.folder, text)
	count := func(size int32) map[accesspb.SearchKind]int {
		counts := map[accesspb.SearchKind]int{}
		got := must[*accesspb.SearchResponse](t, call, g.full["org"], &accesspb.SearchRequest{
			Query: text, PageSize: size,
		}).GetResults()
		if len(got) > 0 && (got[0].GetName() != text || got[0].GetMatch() != accesspb.SearchMatch_SEARCH_MATCH_NAME) {
			t.Errorf("with page size %d, the first result is %v", size, got[0])
		}
		for _, r := range got {
			counts[r.GetKind()]++
		}
		return counts
	}
	const group, identity = accesspb.SearchKind_SEARCH_KIND_GROUP, accesspb.SearchKind_SEARCH_KIND_IDENTITY
	for size, want := range map[int32]map[accesspb.SearchKind]int{
		0:       {group: 5, identity: 5},
		50:      {group: 5, identity: 5},
		1 << 30: {group: 5, identity: 5},
		1:       {group: 1},
		7:       {group: 5, identity: 2},
	} {
		if diff := cmp.Diff(want, count(size)); diff != "" {
			t.Errorf("size %d: %s", size, diff)
		}
	}
}

// searchesNonsense checks that queries with characters that are special in databases find nothing unexpected, and
// that invalid queries are refused.
func (g *gallery) searchesNonsense(t *testing.T, call caller, nobody string) {
	for _, query := range []string{
		"%", "_", "%quartz%", "quartz%", "q_artz", `\`, `quartz\`, "'", "' OR '1'='1",
		`"`, "*", "quartz*", "QUARTZ", "\u202equartz", "quartz\u202e", "\U0010ffff", "😀",
		" ", "/", "//", "dev//folder", "/dev/", "dev/", "..",
		"dev/folder/../folder", strings.Repeat("a/", 120), strings.Repeat("a", 256),
		"sha256:", "sha256:abc", "sha256:zzzzzzzzzz", "abcdef0", "pkg:", "pkg:npm",
		"pkg:npm/", "pkg:npm/no-such", "pkg:npm/left@9.9.9", "CVE-", "CVE-0000-0000", "-",
		"@", "nobody@people.example", "{}", "null", "0", "\n", string(resource.NewRoot()),
		g.folder + "/0123456789abcdef", g.other + g.repo[len(g.org):],
	} {
		for who, bearer := range map[string]string{"the owner": g.full["org"], "nobody": nobody} {
			if got := searched(t, call, bearer, query); len(got) != 0 {
				t.Errorf("%s finds %q by %q", who, got, query)
			}
		}
	}
	managed := hit{
		kind:  accesspb.SearchKind_SEARCH_KIND_ROLE,
		match: accesspb.SearchMatch_SEARCH_MATCH_NAME,
		path:  "apk.pull",
		id:    string(resource.ManagedRoleUID("apk.pull")),
	}
	for bearer, want := range map[string][]string{
		g.full["other"]: {managed.String()}, nobody: nil, g.lacking["roles.list"]: nil,
	} {
		if got := searched(t, call, bearer, "apk.pull"); !slices.Equal(got, want) {
			t.Errorf("a managed role: %q, want %q", got, want)
		}
	}
	table := map[string]badRequest{
		"no text":         {"query", &accesspb.SearchRequest{}},
		"a long text":     {"query", &accesspb.SearchRequest{Query: strings.Repeat("a", 257)}},
		"a longer text":   {"query", &accesspb.SearchRequest{Query: strings.Repeat("é", 5000)}},
		"a NUL":           {"query", &accesspb.SearchRequest{Query: "quartz\x00"}},
		"a negative size": {"page_size", &accesspb.SearchRequest{Query: "quartz", PageSize: -1}},
	}
	g.refuses(t, table)
	// A caller who may find nothing gets the same errors as the owner.
	for name, bad := range table {
		_, owner := call(t, g.full["org"], bad.in)
		if _, st := call(t, nobody, bad.in); st.Code() != codes.InvalidArgument || !proto.Equal(st.Proto(), owner.Proto()) {
			t.Errorf("%s: a caller without rights gets %v, the owner %v", name, st, owner)
		}
		if _, st := call(t, "", bad.in); st.Code() != codes.Unauthenticated {
			t.Errorf("%s without a token: %v", name, st)
		}
	}
	if r := g.send(t, g.Token, "GET", "/access/v1/search?query=%ff", ""); r.status != 400 {
		t.Errorf("a query that is not UTF-8: %d %s", r.status, r.body)
	}
}

// TestApiCountChildren counts children as every caller. The counts must be equal to the totals of the lists. Kinds
// that the caller may not list must be absent.
func TestApiCountChildren(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		h := newHierarchy(t, w)
		a, b := h.child(t, h.folder, "b"), h.child(t, h.folder, "a")
		deep := h.child(t, a, "deep")
		h.repo(t, deep, "app")
		h.repo(t, h.folder, "app")
		h.robot(t, a, "bot")
		h.role(t, deep, "role", someCapabilities...)
		count := func(direct, all int64) *accesspb.ChildCount { return &accesspb.ChildCount{Direct: direct, All: all} }
		empty := &accesspb.ChildCounts{
			Groups: count(0, 0), Repos: count(0, 0), Identities: count(0, 0), Roles: count(0, 0), RoleBindings: count(0, 0),
		}
		inA := &accesspb.ChildCounts{
			Groups: count(1, 1), Repos: count(0, 1), Identities: count(1, 1), Roles: count(0, 1), RoleBindings: count(0, 0),
		}
		inFolder := &accesspb.ChildCounts{
			Groups: count(2, 3), Repos: count(1, 2), Identities: count(0, 1), Roles: count(0, 1), RoleBindings: count(1, 1),
		}
		groups := []*accesspb.CountedGroup{{Uid: b, Name: "a", Counts: empty}, {Uid: a, Name: "b", Counts: inA}}
		without := func(c *accesspb.ChildCounts) *accesspb.ChildCounts {
			c = proto.Clone(c).(*accesspb.ChildCounts)
			c.Repos = nil
			return c
		}
		for protocol, call := range w.protocols() {
			for name, tt := range map[string]struct {
				bearer string
				in     *accesspb.CountChildrenRequest
				want   *accesspb.CountChildrenResponse
			}{
				"all": {
					h.full["folder"], &accesspb.CountChildrenRequest{},
					&accesspb.CountChildrenResponse{Counts: inFolder, Groups: groups},
				},
				"from above": {
					h.full["org"], &accesspb.CountChildrenRequest{}, &accesspb.CountChildrenResponse{Counts: inFolder, Groups: groups},
				},
				"backwards, the last": {
					h.full["org"], &accesspb.CountChildrenRequest{OrderBy: "name desc", Skip: 1},
					&accesspb.CountChildrenResponse{Counts: inFolder, Groups: groups[:1], Skipped: 1},
				},
				"without repo.list": {h.lacking["repo.list"], &accesspb.CountChildrenRequest{},
					&accesspb.CountChildrenResponse{Counts: without(inFolder), Groups: []*accesspb.CountedGroup{
						{Uid: b, Name: "a", Counts: without(empty)}, {Uid: a, Name: "b", Counts: without(inA)},
					}}},
			} {
				tt.in.Uid, tt.want.TotalCount = h.folder, proto.Int64(2)
				diff := cmp.Diff(tt.want, must[*accesspb.CountChildrenResponse](t, call, tt.bearer, tt.in), protocmp.Transform())
				if diff != "" {
					t.Errorf("%s over %s: %s", name, protocol, diff)
				}
			}
			narrow := h.mint(t, w.Owner, token.Claims{Scopes: []resource.UID{resource.UID(h.sibling)}})
			for _, uid := range []string{h.folder, h.folder + "/0123456789abcdef"} {
				_, st := call(t, narrow, &accesspb.CountChildrenRequest{Uid: uid})
				checkDenied(t, "narrowed to a sibling", st, "groups.list", uid)
			}
			_, st := call(t, h.full["folder"], &accesspb.CountChildrenRequest{Uid: h.folder + "/0123456789abcdef"})
			if st.Code() != codes.NotFound {
				t.Errorf("children of a missing group: %v", st)
			}
			counts := must[*accesspb.CountChildrenResponse](t, call, h.full["org"], &accesspb.CountChildrenRequest{
				Uid: h.org,
			}).GetCounts()
			below := &commonpb.UIDPFilter{DescendantsOf: h.org}
			for list, count := range map[proto.Message]*accesspb.ChildCount{
				&iampb.ListGroupsRequest{Uidp: below}:       counts.GetGroups(),
				&registrypb.ListReposRequest{Uidp: below}:   counts.GetRepos(),
				&iampb.ListIdentitiesRequest{Uidp: below}:   counts.GetIdentities(),
				&iampb.ListRolesRequest{Uidp: below}:        counts.GetRoles(),
				&iampb.ListRoleBindingsRequest{Uidp: below}: counts.GetRoleBindings(),
			} {
				if _, total := listed(must[proto.Message](t, call, h.full["org"], list)); total != count.GetAll() {
					t.Errorf("%T: the list has %d, the count is %d", list, total, count.GetAll())
				}
			}
		}
		bad := map[string]badRequest{
			"no uid":        {"uid", &accesspb.CountChildrenRequest{}},
			"no uid at all": {"uid", &accesspb.CountChildrenRequest{Uid: "folder"}},
		}
		for name, b := range badPages {
			bad[name] = badRequest{
				b.field,
				&accesspb.CountChildrenRequest{Uid: h.folder, PageSize: b.size, Skip: b.skip, PageToken: b.token, OrderBy: b.order},
			}
		}
		h.refuses(t, bad)
	})
}
