// Package search finds resources of all kinds by a text.
//
// Finding a kind needs the same capability as listing it, in the groups where the caller holds it, so a search
// reveals only resources that the caller can list. No search scans a table: the text is always a key of an
// index, or the beginning of one.
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
	"github.com/holdfast-dev/holdfast/internal/registry/metadata"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

const (
	maxQuery   = 256 // maximum length of a text in bytes
	maxResults = 50  // maximum number of results of a search
	perKind    = 5   // maximum number of results of each kind
)

// A Kind is the kind of a result. The numbers are the same as in the API.
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
	Replication
)

// A Match says which property of a result matches the text. The numbers are the same as in the API. The best
// match has the lowest number.
type Match int

// The properties that can match a text.
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

// A Result is a resource that a search has found.
type Result struct {
	Kind        Kind
	Match       Match
	UID         resource.UID // for an audit entry, the changed resource; "" for manifests and packages
	Name        string
	DisplayName string
	Path        string
	Parent      resource.UID // the group or repo that contains the resource
	Digest      string       // set only for tags, manifests and packages
	Description string       // the summary of an advisory
	Entry       string       // the ID of an audit entry
	Time        time.Time    // the time of an audit entry
}

// A Service searches resources.
type Service struct {
	db    *store.DB
	authz *authz.Checker
	Sources
}

// Sources are the services whose resources a search finds.
type Sources struct {
	IAM      *iam.Service
	Registry *metadata.Service
	Advisory *advisory.Service
	Findings *query.Service
	Events   *event.Service
}

// New returns a Service over db.
func New(db *store.DB, a *authz.Checker, sources Sources) *Service { return &Service{db, a, sources} }

// Search returns the resources that match a text, the best match first. It returns at most 5 results of each
// kind, and at most size results together. If size is 0 or more than 50, the limit is 50. A caller that may
// list nothing finds nothing. Search returns fault.InvalidArgument unless the text has 1 to 256 bytes of UTF-8
// without null characters.
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
	var results []Result
	for _, find := range []func(*Service, context.Context, string) ([]Result, error){
		(*Service).byUID, (*Service).byPath, (*Service).byName, (*Service).byPerson, (*Service).byTag,
		(*Service).byDigest, (*Service).byAdvisory, (*Service).byPURL, (*Service).byRequest,
	} {
		found, err := find(s, ctx, text)
		if err != nil {
			return nil, err
		}
		results = append(results, found...)
	}
	results = best(results, min(cmp.Or(size, maxResults), maxResults))
	return results, s.addPaths(ctx, results)
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

// best sorts results and returns the best n of them, at most perKind of each kind, without duplicates. It
// changes found.
func best(found []Result, n int) []Result {
	slices.SortStableFunc(found, func(a, b Result) int {
		return cmp.Or(cmp.Compare(a.Match, b.Match), cmp.Compare(a.Kind, b.Kind))
	})
	type key struct {
		kind                Kind
		uid, parent         resource.UID
		name, digest, entry string
	}
	seen, count := map[key]bool{}, map[Kind]int{}
	found = slices.DeleteFunc(found, func(r Result) bool {
		k := key{r.Kind, r.UID, r.Parent, r.Name, r.Digest, r.Entry}
		if seen[k] || count[r.Kind] == perKind {
			return true
		}
		seen[k] = true
		count[r.Kind]++
		return false
	})
	return found[:min(n, len(found))]
}

// ignoreAbsent returns nil for an error that means that a text finds nothing, such as fault.NotFound or
// fault.PermissionDenied. Otherwise it returns err.
func ignoreAbsent(err error) error {
	for _, code := range []fault.Code{
		fault.NotFound, fault.PermissionDenied, fault.InvalidArgument, fault.FailedPrecondition,
	} {
		if errors.Is(err, code) {
			return nil
		}
	}
	return err
}
