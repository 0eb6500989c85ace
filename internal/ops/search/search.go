// Package search finds what a text may mean, over all kinds of resources.
//
// Every kind is asked with the capability that its own list needs, in the groups where the caller holds it, so a
// search tells nothing that lists do not tell. Nothing is found by reading a table from end to end: a text is a
// key of an index, or the beginning of one.
package search

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/event"
	"github.com/holdfast-dev/holdfast/internal/registry/protocol"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

const (
	maxQuery   = 256 // bytes of a text
	maxResults = 50  // of a search
	perKind    = 5   // results of one kind
)

// A Kind is what a result is. The numbers are those of the API.
type Kind int

// The kinds of results.
const (
	_ Kind = iota
	Group
	Repo
	Identity
	Account
	Role
	RoleBinding
	IdentityProvider
	GroupRoleMapping
	AccountAssociation
	GroupInvite
	Tag
	Manifest
	Package
	Advisory
	AdvisoryFeed
	Exception
	Rule
	Subscription
	Delivery
	AuditEntry
	Upstream
	Signer
)

// A Match is what of a result the text is. The numbers are those of the API, and the best match has the least.
type Match int

// The ways in which a text matches.
const (
	_ Match = iota
	ByUID
	ByPath
	ByAdvisoryID
	ByRequestID
	ByPURL
	ByEmail
	ByName
	ByDigest
	ByPathPrefix
	ByNamePrefix
)

// A Result is something that a text may mean.
type Result struct {
	Kind        Kind
	Match       Match
	UID         resource.UID // of an audit entry, what was changed; "" for manifests and packages
	Name        string
	DisplayName string
	Path        string
	Parent      resource.UID // what it is in
	Digest      string       // of tags, manifests and packages
	Description string       // the summary of an advisory
	Entry       string       // the id of an audit entry
	Time        time.Time    // of an audit entry
}

// A Service searches.
type Service struct {
	db    *store.DB
	authz *authz.Checker
	Sources
}

// Sources are the services whose resources a search finds.
type Sources struct {
	IAM      *iam.Service
	Registry *protocol.Service
	Advisory *advisory.Service
	Findings *finding.Service
	Events   *event.Service
}

// New returns a Service over db.
func New(db *store.DB, a *authz.Checker, all Sources) *Service { return &Service{db, a, all} }

// Search returns what a text may mean, best first: at most 5 results of a kind, and size altogether, which is 50 if
// it is 0 or more than that. A caller who may list nothing finds nothing. It returns fault.InvalidArgument unless
// the text has 1 to 256 bytes of UTF-8 without null characters.
func (s *Service) Search(ctx context.Context, text string, size int) ([]Result, error) {
	if _, err := authz.RequireCaller(ctx); err != nil {
		return nil, err
	}
	if err := check(text, size); err != nil {
		return nil, err
	}
	if err := s.authz.EnsureCurrent(ctx); err != nil {
		return nil, err
	}
	var all []Result
	for _, find := range []func(*Service, context.Context, string) ([]Result, error){
		(*Service).byUID, (*Service).byPath, (*Service).byName, (*Service).byEmail, (*Service).byTag, (*Service).byDigest,
		(*Service).byAdvisory, (*Service).byPURL, (*Service).byRequest,
	} {
		some, err := find(s, ctx, text)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	all = best(all, min(cmp.Or(size, maxResults), maxResults))
	return all, s.addPaths(ctx, all)
}

func check(text string, size int) error {
	var bad []fault.Violation
	switch {
	case text == "":
		bad = append(bad, fault.Violation{Subject: "query", Description: "is required"})
	case len(text) > maxQuery:
		bad = append(bad, fault.Violation{Subject: "query", Description: "must have at most 256 bytes"})
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		bad = append(bad, fault.Violation{Subject: "query", Description: "must be UTF-8 without null characters"})
	}
	if size < 0 {
		bad = append(bad, fault.Violation{Subject: "page_size", Description: "must not be negative"})
	}
	if len(bad) > 0 {
		return fault.Fields(bad)
	}
	return nil
}

// best returns the best of some results, each once: at most n, and perKind of each kind.
func best(all []Result, n int) []Result {
	slices.SortStableFunc(all, func(a, b Result) int {
		return cmp.Or(cmp.Compare(a.Match, b.Match), cmp.Compare(a.Kind, b.Kind))
	})
	type key struct {
		kind                Kind
		uid, parent         resource.UID
		name, digest, entry string
	}
	seen, count := map[key]bool{}, map[Kind]int{}
	all = slices.DeleteFunc(all, func(r Result) bool {
		k := key{r.Kind, r.UID, r.Parent, r.Name, r.Digest, r.Entry}
		if seen[k] || count[r.Kind] == perKind {
			return true
		}
		seen[k] = true
		count[r.Kind]++
		return false
	})
	return all[:min(n, len(all))]
}

// nothing replaces an error that says that there is nothing to find by nil.
func nothing(err error) error {
	for _, code := range []fault.Code{
		fault.NotFound, fault.PermissionDenied, fault.InvalidArgument, fault.FailedPrecondition,
	} {
		if errors.Is(err, code) {
			return nil
		}
	}
	return err
}
