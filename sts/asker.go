package sts

import (
	"net/netip"
	"net/url"
	"strings"

	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/trust"
)

// askerFor returns for whom the issuer of an identity's credentials is asked for
// its keys. m is the matcher of the identity. An identity without a UID is that
// of nobody in particular, whose issuer the credential chose.
func askerFor(i resource.Identity, m *resource.Matcher) trust.Asker {
	switch {
	case i.UID == "" || !m.NamesIssuer():
		return trust.Asker{Tenant: string(i.UID.Root()), Reason: trust.Matched}
	case i.UID.IsRoot() && i.Relationship.ClaimMatch != nil:
		return personAsker(i.Relationship.ClaimMatch.Issuer)
	}
	return trust.Asker{Tenant: string(i.UID.Root()), Reason: trust.Named}
}

// personAsker returns for whom the issuer of people is asked. People belong to no
// organization, so they are grouped by the domain of their issuer: somebody with
// many issuers has them in one domain, or in a few.
func personAsker(issuer string) trust.Asker {
	host := ""
	if u, err := url.Parse(issuer); err == nil {
		host = u.Hostname()
	}
	if _, err := netip.ParseAddr(host); err == nil {
		host = "addresses" // of which one host can have as many as it likes
	}
	labels := strings.Split(strings.ToLower(host), ".")
	return trust.Asker{Tenant: strings.Join(labels[max(0, len(labels)-2):], "."), Reason: trust.Person}
}
