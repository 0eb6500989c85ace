package resource

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/bits"
)

// A Capability is something that a role can allow. Its value is its bit in a Capabilities set,
// which never changes.
type Capability uint8

// These are the capabilities that the service checks.
const (
	Internal           Capability = 95
	GroupsCreate       Capability = 1
	GroupsUpdate       Capability = 2
	GroupsList         Capability = 3
	GroupsDelete       Capability = 4
	RolesCreate        Capability = 8
	RolesUpdate        Capability = 9
	RolesList          Capability = 10
	RolesDelete        Capability = 11
	RoleBindingsCreate Capability = 12
	RoleBindingsUpdate Capability = 13
	RoleBindingsList   Capability = 14
	RoleBindingsDelete Capability = 15
	IdentityCreate     Capability = 29
	IdentityUpdate     Capability = 30
	IdentityList       Capability = 31
	IdentityDelete     Capability = 32

	GroupInvitesCreate Capability = 5
	GroupInvitesList   Capability = 6
	GroupInvitesDelete Capability = 7

	AccountAssociationsCreate Capability = 21
	AccountAssociationsUpdate Capability = 22
	AccountAssociationsList   Capability = 23
	AccountAssociationsDelete Capability = 24

	IdentityProvidersCreate     Capability = 52
	IdentityProvidersUpdate     Capability = 53
	IdentityProvidersList       Capability = 54
	IdentityProvidersDelete     Capability = 55
	IdentityProvidersScimManage Capability = 191

	RepoBlobsGet         Capability = 107
	RepoCreate           Capability = 56
	RepoUpdate           Capability = 57
	RepoList             Capability = 58
	RepoDelete           Capability = 59
	ManifestCreate       Capability = 60
	ManifestList         Capability = 62
	ManifestDelete       Capability = 63
	ManifestMetadataList Capability = 72
	TagCreate            Capability = 64
	TagUpdate            Capability = 65
	TagList              Capability = 66
	TagDelete            Capability = 67
	ReferrersList        Capability = 124
	RegistrySettingsList Capability = 101
	DeploymentsCreate    Capability = 98
	DeploymentsList      Capability = 100
	SBOMsList            Capability = 69
	ImageReportsList     Capability = 70 // vuln_reports.list: reports on one image
	ReportsList          Capability = 79 // vuln_report.list: reports on all images
	VersionList          Capability = 77
	BuildReportsList     Capability = 81
	AdvisoriesCreate     Capability = 89
	AdvisoriesUpdate     Capability = 90
	AdvisoriesList       Capability = 91
	AdvisoriesDelete     Capability = 92
	AdvisoriesApprove    Capability = 93
	PolicyCreate         Capability = 113
	PolicyUpdate         Capability = 114
	PolicyList           Capability = 115
	PolicyDelete         Capability = 116
	RepoCheckPolicies    Capability = 134
	OverrideCreate       Capability = 174
	OverrideList         Capability = 175
	OverrideDelete       Capability = 176

	SubscriptionsCreate Capability = 36
	SubscriptionsUpdate Capability = 37
	SubscriptionsList   Capability = 38
	SubscriptionsDelete Capability = 39
)

// capabilityWords is how many 64-bit words the assigned bits need.
const capabilityWords = 4

// Capabilities is a set of capabilities.
type Capabilities [capabilityWords]uint64

// NewCapabilities returns the set that contains the given capabilities.
func NewCapabilities(all ...Capability) (s Capabilities) {
	for _, c := range all {
		s.Add(c)
	}
	return s
}

// CapabilitySet returns the set that contains the named capabilities. It panics if a name is
// unknown.
func CapabilitySet(names ...string) Capabilities {
	var s Capabilities
	for _, name := range names {
		c, ok := ParseCapability(name)
		if !ok {
			panic("no capability " + name)
		}
		s.Add(c)
	}
	return s
}

// Add adds c to the set.
func (s *Capabilities) Add(c Capability) { s[c>>6] |= 1 << (c & 63) }

// Has reports whether c is in the set.
func (s Capabilities) Has(c Capability) bool { return s[c>>6]&(1<<(c&63)) != 0 }

// Union returns the union of the sets.
func (s Capabilities) Union(t Capabilities) Capabilities {
	for i := range s {
		s[i] |= t[i]
	}
	return s
}

// Without returns the capabilities in s that are not in t.
func (s Capabilities) Without(t Capabilities) Capabilities {
	for i := range s {
		s[i] &^= t[i]
	}
	return s
}

// Len returns how many capabilities are in the set.
func (s Capabilities) Len() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// Intersects reports whether the sets have a common capability.
func (s Capabilities) Intersects(t Capabilities) bool {
	for i := range s {
		if s[i]&t[i] != 0 {
			return true
		}
	}
	return false
}

// All returns the capabilities in the set, ordered by number. It leaves out unknown bits, which
// a newer version may have stored.
func (s Capabilities) All() []Capability {
	var all []Capability
	for _, k := range capabilities {
		if s.Has(k.bit) {
			all = append(all, k.bit)
		}
	}
	return all
}

// MarshalJSON encodes the set as an array of names.
func (s Capabilities) MarshalJSON() ([]byte, error) {
	names := []string{}
	for _, c := range s.All() {
		names = append(names, c.String())
	}
	return json.Marshal(names)
}

// UnmarshalJSON decodes a set encoded by MarshalJSON. It ignores unknown names.
func (s *Capabilities) UnmarshalJSON(b []byte) error {
	var names []string
	if err := json.Unmarshal(b, &names); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	*s = Capabilities{}
	for _, name := range names {
		if c, ok := ParseCapability(name); ok {
			s.Add(c)
		}
	}
	return nil
}

// String returns the capability's dotted name.
func (c Capability) String() string {
	return cmp.Or(byBit[c].name, "unknown")
}

// Number returns the capability's number in the API.
func (c Capability) Number() int32 {
	return byBit[c].number
}

// ParseCapability returns the capability with that dotted name, and whether there is one.
func ParseCapability(name string) (Capability, bool) {
	k, ok := byName[name]
	return k.bit, ok
}

// CapabilityNumbered returns the capability with that number in the API, and whether there is one.
func CapabilityNumbered(n int32) (Capability, bool) {
	k, ok := byNumber[n]
	return k.bit, ok
}

type capability struct {
	number int32
	name   string
	bit    Capability
}

var (
	byBit    = index(func(k capability) Capability { return k.bit })
	byName   = index(func(k capability) string { return k.name })
	byNumber = index(func(k capability) int32 { return k.number })
)

func index[K comparable](key func(capability) K) map[K]capability {
	m := make(map[K]capability, len(capabilities))
	for _, k := range capabilities {
		m[key(k)] = k
	}
	return m
}

// internalOnly contains the capabilities that have an effect only together with Internal.
var internalOnly = CapabilitySet("repo.internal.admin", "registry.deployments.update")

// capabilities contains, for every capability, its number in the API, its name
// and its bit. Numbers and bits are never reused.
var capabilities = [...]capability{
	{2, "internal", 95},
	{101, "groups.create", 1},
	{102, "groups.update", 2},
	{103, "groups.list", 3},
	{104, "groups.delete", 4},
	{201, "group_invites.create", 5},
	{203, "group_invites.list", 6},
	{204, "group_invites.delete", 7},
	{301, "roles.create", 8},
	{302, "roles.update", 9},
	{303, "roles.list", 10},
	{304, "roles.delete", 11},
	{401, "role_bindings.create", 12},
	{402, "role_bindings.update", 13},
	{403, "role_bindings.list", 14},
	{404, "role_bindings.delete", 15},
	{623, "record_signatures.list", 49},
	{650, "sboms.list", 69},
	{660, "vuln_reports.list", 70},
	{670, "attestations.list", 71},
	{701, "account_associations.create", 21},
	{702, "account_associations.update", 22},
	{703, "account_associations.list", 23},
	{704, "account_associations.delete", 24},
	{901, "identity.create", 29},
	{902, "identity.update", 30},
	{903, "identity.list", 31},
	{904, "identity.delete", 32},
	{1301, "identity_providers.create", 52},
	{1302, "identity_providers.update", 53},
	{1303, "identity_providers.list", 54},
	{1304, "identity_providers.delete", 55},
	{1305, "identity_providers.scim.manage", 191},
	{1501, "subscriptions.create", 36},
	{1502, "subscriptions.update", 37},
	{1503, "subscriptions.list", 38},
	{1504, "subscriptions.delete", 39},
	{1600, "repo.blobs.get", 107},
	{1603, "repo.create", 56},
	{1604, "repo.update", 57},
	{1605, "repo.list", 58},
	{1606, "repo.delete", 59},
	{1607, "manifest.create", 60},
	{1608, "manifest.update", 61},
	{1609, "manifest.list", 62},
	{1610, "manifest.delete", 63},
	{1611, "tag.create", 64},
	{1612, "tag.update", 65},
	{1613, "tag.list", 66},
	{1614, "tag.delete", 67},
	{1615, "manifest.metadata.list", 72},
	{1616, "referrers.list", 124},
	{1617, "repo.internal.admin", 168},
	{1650, "apk.create", 73},
	{1651, "apk.update", 74},
	{1652, "apk.list", 75},
	{1653, "apk.delete", 76},
	{1654, "version.list", 77},
	{1655, "apk.blobs.get", 108},
	{1660, "vuln_report.create", 78},
	{1661, "vuln_report.list", 79},
	{1662, "vuln.create", 80},
	{1670, "build_report.list", 81},
	{1680, "registry.entitlements.list", 87},
	{1681, "registry.entitlements.create", 96},
	{1682, "registry.entitlements.delete", 97},
	{1683, "registry.settings.list", 101},
	{1684, "registry.settings.update", 102},
	{1685, "registry.entitlements.images.add", 133},
	{1686, "registry.entitlements.images.remove", 169},
	{1687, "registry.entitlements.images.swap", 202},
	{1688, "registry.overlays.list", 207},
	{1689, "registry.overlays.edit", 208},
	{1800, "libraries.entitlements.create", 82},
	{1801, "libraries.entitlements.list", 83},
	{1802, "libraries.entitlements.delete", 84},
	{1803, "libraries.artifacts.list", 94},
	{1810, "libraries.python.list", 85},
	{1811, "libraries.python.create", 111},
	{1820, "libraries.java.list", 86},
	{1821, "libraries.java.create", 110},
	{1830, "libraries.javascript.list", 88},
	{1831, "libraries.javascript.create", 109},
	{1832, "libraries.dotnet.list", 196},
	{1833, "libraries.dotnet.create", 197},
	{1834, "libraries.go.list", 205},
	{1835, "libraries.go.create", 206},
	{1860, "libraries.cache.invalidate", 129},
	{1862, "libraries.cache.list", 192},
	{1870, "libraries.aws_marketplace.subscriptions.create", 165},
	{1871, "libraries.aws_marketplace.subscriptions.update", 166},
	{1872, "libraries.aws_marketplace.subscriptions.list", 167},
	{1874, "libraries.request_groups.create", 209},
	{1875, "libraries.request_groups.list", 210},
	{1876, "libraries.request_groups.update", 211},
	{1877, "libraries.request_groups.delete", 212},
	{1878, "libraries.request_groups.submit", 213},
	{1879, "libraries.request_groups.items.update", 214},
	{1882, "libraries.remote_registries.create", 219},
	{1883, "libraries.remote_registries.list", 220},
	{1884, "libraries.remote_registries.delete", 221},
	{1900, "advisories.create", 89},
	{1901, "advisories.update", 90},
	{1902, "advisories.list", 91},
	{1903, "advisories.delete", 92},
	{1904, "advisories.approve", 93},
	{1950, "registry.deployments.create", 98},
	{1951, "registry.deployments.update", 99},
	{1952, "registry.deployments.list", 100},
	{2001, "policies.policy.create", 113},
	{2002, "policies.policy.update", 114},
	{2003, "policies.policy.list", 115},
	{2004, "policies.policy.delete", 116},
	{2011, "policies.binding.create", 117},
	{2012, "policies.binding.update", 118},
	{2013, "policies.binding.list", 119},
	{2014, "policies.binding.delete", 120},
	{2015, "policies.decision.list", 173},
	{2016, "policies.override.create", 174},
	{2017, "policies.override.list", 175},
	{2018, "policies.override.delete", 176},
	{2020, "repo.check_policies", 134},
	{2100, "packages.entitlements.list", 123},
	{2201, "terms.accept", 125},
	{2202, "terms.list", 126},
	{2301, "guardener.dfc.convert", 127},
	{2302, "guardener.association.manage", 170},
	{2303, "guardener.association.list", 181},
	{2305, "guardener.entitlement.list", 186},
	{2306, "guardener.actions.migrate", 188},
	{2307, "guardener.scan.list", 217},
	{2308, "guardener.scan.get", 218},
	{2401, "mcp.tool.call", 128},
	{2501, "skills.publish", 137},
	{2502, "skills.entitlements.create", 138},
	{2503, "skills.entitlements.list", 139},
	{2504, "skills.entitlements.delete", 140},
	{2507, "skills.list", 195},
	{2508, "skills.harden.read", 199},
	{2509, "skills.harden.write", 203},
	{2510, "skills.harden.cancel", 204},
	{2605, "libraries.policy.create", 148},
	{2606, "libraries.policy.update", 149},
	{2607, "libraries.policy.list", 150},
	{2608, "libraries.policy.delete", 151},
	{2609, "libraries.policy.binding.create", 152},
	{2610, "libraries.policy.binding.update", 153},
	{2611, "libraries.policy.binding.list", 154},
	{2612, "libraries.policy.binding.delete", 155},
	{2613, "libraries.policy.block_event.list", 156},
	{2700, "actions.list", 164},
}
