package iam

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// maxMembers is the greatest number of members of the caller's organizations among which people are searched.
const maxMembers = 50_000

// maxQuery is the greatest length of the text of a search for people, in bytes.
const maxQuery = 256

// A Person is a person that the caller may see.
type Person struct {
	UID         resource.UID
	Name        string
	DisplayName string
	Emails      []string // addresses of the identity, and of accounts that the caller may list
	LastSeen    time.Time
	AccountOnly bool // the caller sees the person only as the holder of an account
}

// Title returns the name of a person for display.
func (p Person) Title() string {
	first := ""
	if len(p.Emails) > 0 {
		first = p.Emails[0]
	}
	return cmp.Or(p.DisplayName, p.Name, first, string(p.UID))
}

func (p Person) key() string { return strings.ToLower(p.Title()) + "\x00" + string(p.UID) }

// called reports whether a text names the person: a name, an e-mail address, or the part of an address before the @.
// Capitals do not matter.
func (p Person) called(text string) bool {
	if strings.EqualFold(p.Name, text) || strings.EqualFold(p.DisplayName, text) {
		return text != ""
	}
	return slices.ContainsFunc(p.Emails, func(email string) bool {
		local, _, _ := strings.Cut(email, "@")
		return strings.EqualFold(email, text) || strings.EqualFold(local, text)
	})
}

// contains reports whether a name or an e-mail address contains a text, or whether the text is the UID of the person.
// Capitals do not matter.
func (p Person) contains(text string) bool {
	if text == string(p.UID) {
		return true
	}
	text = strings.ToLower(text)
	return slices.ContainsFunc(append([]string{p.Name, p.DisplayName}, p.Emails...), func(s string) bool {
		return strings.Contains(strings.ToLower(s), text)
	})
}

// peopleList has the order of ListPeople.
var peopleList = page.List{Kind: "people", Fields: []string{"name"}, Default: page.Order{Field: "name"}}

// A peopleQuery selects the people of a list.
type peopleQuery struct {
	Query string `json:"query,omitempty"`
}

// ListPeople returns a page of the people whom the caller would see in a role binding, or in a list of accounts. If
// query is set, it returns only people whose name or e-mail address contains it, or the person with this UID.
func (s *Service) ListPeople(ctx context.Context, query string, p page.Params) (page.Page[Person], error) {
	f, req, err := page.Resume(s.pages, peopleList, peopleQuery{query}, p)
	if err != nil {
		return page.Page[Person]{}, err
	}
	if len(f.Query) > maxQuery {
		return page.Page[Person]{}, fault.Field("query", "must have at most %d bytes", maxQuery)
	}
	found, err := s.visiblePersons(ctx, func(p Person) bool { return p.contains(f.Query) })
	if err != nil {
		return page.Page[Person]{}, err
	}
	return page.Finish(s.pages, req, page.Cut(found, req, Person.key)), nil
}

// PeopleCalled returns up to maxAtPath people, among those that ListPeople returns, whom a text names exactly: by a
// name, an e-mail address, or the part of an address before the @.
func (s *Service) PeopleCalled(ctx context.Context, text string) ([]Person, error) {
	found, err := s.visiblePersons(ctx, func(p Person) bool { return p.called(text) })
	return found[:min(len(found), maxAtPath)], err
}

// visiblePersons returns the matching people whom the caller may see, sorted by their names. Visibility is checked
// only for people who match.
func (s *Service) visiblePersons(ctx context.Context, match func(Person) bool) ([]Person, error) {
	reach, err := s.authz.Reach(ctx, resource.IdentityList)
	if err != nil || len(reach) == 0 {
		return nil, err
	}
	var orgs, listed []resource.UID // listed are the organizations whose accounts the caller may list
	for _, g := range reach {
		orgs = append(orgs, g.Root())
		if g.IsRoot() {
			listed = append(listed, g)
		}
	}
	members, err := s.store.Members(ctx, slices.Compact(orgs), maxMembers)
	if err != nil {
		return nil, err
	}
	holders, err := s.accounts.AccountHolders(ctx, listed)
	if err != nil {
		return nil, err
	}
	var found []Person
	for _, m := range members {
		p := Person{UID: m.UID, Name: m.Name, DisplayName: m.DisplayName, LastSeen: m.LastSeenTime}
		for _, email := range []string{m.Email, holders[m.UID]} {
			if email != "" && !slices.Contains(p.Emails, email) {
				p.Emails = append(p.Emails, email)
			}
		}
		if match(p) {
			found = append(found, p)
		}
	}
	uids := make([]resource.UID, len(found))
	for i, p := range found {
		uids[i] = p.UID
	}
	visible, err := s.VisiblePeople(ctx, uids)
	if err != nil {
		return nil, err
	}
	seen := map[resource.UID]bool{}
	for _, uid := range visible {
		seen[uid] = true
	}
	found = slices.DeleteFunc(found, func(p Person) bool { return !seen[p.UID] && holders[p.UID] == "" })
	for i, p := range found {
		if !seen[p.UID] { // the caller sees only the account
			found[i].Emails, found[i].LastSeen, found[i].AccountOnly = []string{holders[p.UID]}, time.Time{}, true
		}
	}
	found = slices.DeleteFunc(found, func(p Person) bool { return !match(p) })
	slices.SortFunc(found, func(a, b Person) int { return cmp.Compare(a.key(), b.key()) })
	return found, nil
}
