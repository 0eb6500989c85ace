package registry

import (
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// An Upstream is a registry from which a group fetches images on demand. The name of a repo at the upstream is its path
// below the group.
type Upstream struct {
	UID     resource.UID `json:"uid"`
	Name    string       `json:"name"`
	Address string       `json:"address"` // https:// and a host, and nothing else

	// Realm is the address at which the upstream issues tokens, if that is on another host. Credentials are sent only
	// to the host of Address and to Realm.
	Realm string `json:"realm,omitempty"`

	FreshFor time.Duration `json:"freshFor"`         // time after which a stored tag is compared with the upstream again
	Names    []string      `json:"names,omitempty"`  // patterns for the names of repos that may be fetched; see Fetches
	Anyone   bool          `json:"anyone,omitempty"` // whether anyone who pulls from a public repo may cause fetches

	// Identity is the UID of an identity on the upstream, if the upstream is a Holdfast server that trusts tokens of
	// this server. If it is set, Credentials are empty.
	Identity string `json:"identity,omitempty"`

	Credentials resource.Secret `json:"credentials,omitzero"` // user and password, separated by a colon
	CreateTime  time.Time       `json:"createTime"`
	UpdateTime  time.Time       `json:"updateTime"`
}

// The limits and the default of Upstream.FreshFor.
const (
	MinFreshFor     = time.Second
	MaxFreshFor     = 31 * 24 * time.Hour
	DefaultFreshFor = time.Hour

	maxUpstreamNames = 100
)

// dockerHub are names under which users know Docker's registry, which has another address.
var dockerHub = []string{"docker.io", "index.docker.io"}

// AddressOf returns the address of a registry from the host by which users name it.
func AddressOf(host string) string {
	if slices.Contains(dockerHub, host) {
		return "https://registry-1.docker.io"
	}
	return "https://" + host
}

// DefaultRealm returns the realm of a registry that is known to issue its tokens on another host. It returns "" for
// other registries.
func DefaultRealm(address string) string {
	if address == "https://registry-1.docker.io" {
		return "https://auth.docker.io/token"
	}
	return ""
}

// Group returns the group of the upstream.
func (u Upstream) Group() resource.UID { return u.UID.Parent() }

// SameHolder reports whether the credentials of o may be used for u: both must have the same address and the same
// realm.
func (u Upstream) SameHolder(o Upstream) bool {
	return u.Address == o.Address && u.Realm == o.Realm
}

// Fetches reports whether a repo of the upstream may be fetched. The name must match one of the patterns without an
// exclamation mark, if there are any. It must match none of the patterns with an exclamation mark. A star matches any
// text in one part of a name, and ** at the end of a pattern matches all further parts.
func (u Upstream) Fetches(name string) bool { return matchesNames(u.Names, name, matchName) }

// matchesNames reports whether patterns select a name. matches reports whether a pattern without an exclamation mark
// matches the name.
func matchesNames(patterns []string, name string, matches func(pattern, name string) bool) bool {
	wanted, matched := false, false
	for _, pattern := range patterns {
		without, excluded := strings.CutPrefix(pattern, "!")
		fits := matches(without, name)
		if excluded && fits {
			return false
		}
		wanted, matched = wanted || !excluded, matched || !excluded && fits
	}
	return matched || !wanted
}

func matchName(pattern, name string) bool {
	if pattern == "**" {
		return true
	}
	if head, ok := strings.CutSuffix(pattern, "/**"); ok {
		n := strings.Count(head, "/") + 1
		parts := strings.SplitN(name, "/", n+1)
		if len(parts) <= n {
			return false
		}
		pattern, name = head, strings.Join(parts[:n], "/")
	}
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// Validate reports every field a caller must fix.
func (u Upstream) Validate() error {
	var p problems
	p.Name(u.Name)
	p.origin("address", u.Address)
	if u.Realm != "" {
		p.address("realm", u.Realm, "https", "http")
	}
	if u.FreshFor < MinFreshFor || u.FreshFor > MaxFreshFor {
		p.Add("fresh_for", "must be from 1 second to 31 days")
	}
	p.AtMost("names", len(u.Names), maxUpstreamNames, "patterns")
	for _, pattern := range u.Names[:min(len(u.Names), maxUpstreamNames)] {
		p.namesPattern("names", pattern)
	}
	p.credentials(u)
	return p.Err()
}

// origin checks an address that consists of a scheme and a host.
func (p *problems) origin(field, text string) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || text != u.Scheme+"://"+u.Host ||
		len(text) > resource.MaxText || !resource.Storable(text) {
		p.Add(field, "must be an address such as https://registry.example.com, without a path and a password")
	}
}

// namesPattern checks a pattern for names of repos.
func (p *problems) namesPattern(field, pattern string) {
	text := strings.TrimPrefix(pattern, "!")
	_, err := path.Match(text, "")
	inner := strings.Contains(strings.TrimSuffix(text, "**"), "**")
	if err != nil || text == "" || inner || len(text) > resource.MaxPathName || !resource.Storable(text) {
		p.Add(field, "must be patterns such as library/*, acme/** or !acme/secret")
	}
}

// credentials checks the credentials that a caller has sent. The error messages contain no part of the credentials.
func (p *problems) credentials(u Upstream) {
	p.Text("identity", u.Identity)
	plain := u.Credentials.Plain
	user, password, ok := strings.Cut(plain, ":")
	if plain != "" && (!ok || user == "" || password == "" || len(plain) > resource.MaxText || !resource.Storable(plain) ||
		strings.ContainsAny(plain, "\r\n")) {
		p.Add("credentials", "must be a user and a password with a colon between")
	}
	if u.Identity != "" && !u.Credentials.Empty() {
		p.Add("identity", "cannot be given together with credentials")
	}
	if u.Identity != "" && !resource.WellFormed(u.Identity) {
		p.Add("identity", "must be the uid of an identity of the other server")
	}
}
