package sts

import (
	"net/netip"
	"net/url"
	"strings"

	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/trust"
)

// quotaFor returns whose quota a fetch of the issuer's keys counts against. m
// is the matcher of the identity. An identity without a UID stands for nobody
// in particular: the credential chose its issuer.
func quotaFor(i resource.Identity, m *resource.Matcher) trust.QuotaKey {
	switch {
	case i.UID == "" || !m.NamesIssuer():
		return trust.QuotaKey{Tenant: string(i.UID.Root()), Reason: trust.Matched}
	case i.UID.IsRoot() && i.Relationship.ClaimMatch != nil:
		return personQuota(i.Relationship.ClaimMatch.Issuer)
	}
	return trust.QuotaKey{Tenant: string(i.UID.Root()), Reason: trust.Named}
}

// personQuota returns the quota of a person's issuer. People belong to no
// organization, so they are grouped by the domain of their issuer: an attacker
// with many issuers has them in one domain, or in a few.
func personQuota(issuer string) trust.QuotaKey {
	host := ""
	if u, err := url.Parse(issuer); err == nil {
		host = u.Hostname()
	}
	if _, err := netip.ParseAddr(host); err == nil {
		host = "addresses" // a host can have any number of them
	}
	labels := strings.Split(strings.ToLower(host), ".")
	return trust.QuotaKey{Tenant: strings.Join(labels[max(0, len(labels)-2):], "."), Reason: trust.Person}
}
