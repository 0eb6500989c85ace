package match_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/lease"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
	"github.com/holdfast-dev/holdfast/internal/vuln/match"
	"github.com/holdfast-dev/holdfast/internal/vuln/vulntest"
)

// before returns an advisory about the versions of a package before a fix, or about all versions.
func before(id, ecosystem, name, fixed string) vuln.Advisory {
	a := vuln.Advisory{ID: id, Affected: []vuln.Affected{{Ecosystem: ecosystem, Name: name, Ranges: []vuln.AffectedRange{
		{Type: "ECOSYSTEM", Events: []vuln.RangeEvent{{Introduced: "0"}}}}}}}
	if fixed != "" {
		events := &a.Affected[0].Ranges[0].Events
		*events = append(*events, vuln.RangeEvent{Fixed: fixed})
	}
	a.Source.Digest = []byte(id + ecosystem + name + fixed)
	return a
}

// packageWith returns the package that a package URL names.
func packageWith(t *testing.T, purl string) registry.Package {
	t.Helper()
	ecosystem, name, v, err := version.ParsePURL(purl)
	testkit.Must(t, err)
	return registry.Package{Ecosystem: ecosystem, Name: name, Version: v, PURL: purl}
}

// A stage has advisories and packages, and compares them.
type stage struct {
	*vulntest.Store
	t       *testing.T
	matcher *match.Matcher
	org     resource.UID
}

func newStage(t *testing.T, s *vulntest.Store) *stage {
	t.Helper()
	m := match.New(s.FindingStore, s.AdvisoryStore, nil)
	if s.Replicated() {
		if has, err := lease.Acquire(t.Context(), s.DB, "matches", m.Holder, time.Hour); err != nil || !has {
			t.Fatal(has, err)
		}
	}
	return &stage{s, t, m, newOrganization(t, s, "org")}
}

func newOrganization(t *testing.T, s *vulntest.Store, name string) resource.UID {
	t.Helper()
	now := s.Time()
	g := resource.Group{UID: resource.NewRoot(), Name: name, CreateTime: now, UpdateTime: now}
	_, err := s.InsertGroup(t.Context(), g)
	testkit.Must(t, err)
	return g.UID
}

func (s *stage) compare() {
	s.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		did, err := s.matcher.Match(s.t.Context())
		testkit.Must(s.t, err)
		if !did {
			return
		}
	}
	s.t.Fatal("the comparison does not end")
}

// findings returns the IDs of the advisories that affect a package, in order.
func (s *stage) findings(purl string) string {
	s.t.Helper()
	ids, err := s.AddPackages(s.t.Context(), []registry.Package{packageWith(s.t, purl)})
	testkit.Must(s.t, err)
	s.compare()
	hits, err := s.HitsOf(s.t.Context(), ids, []resource.UID{s.org})
	testkit.Must(s.t, err)
	var found []string
	for _, h := range hits {
		a, err := s.AdvisoriesByKey(s.t.Context(), []int64{h.Advisory})
		testkit.Must(s.t, err)
		found = append(found, a[0].ID)
	}
	slices.Sort(found)
	return strings.Join(found, " ")
}

func (s *stage) advise(advisories ...vuln.Advisory) {
	s.t.Helper()
	_, err := s.ImportAdvisories(s.t.Context(), s.org, "test", advisories)
	testkit.Must(s.t, err)
	s.compare()
}

// TestReleases checks that a package of a distribution has only findings for its own release, and that the coverage
// counts the ecosystem only if an advisory is about that release.
func TestReleases(t *testing.T) {
	vulntest.Each(t, func(t *testing.T, db *vulntest.Store) {
		s := newStage(t, db)
		s.advise(before("rhel9", "Red Hat:enterprise_linux:9::baseos", "curl", "9"),
			before("rhel10", "Red Hat:enterprise_linux:10.0", "curl", "9"),
			before("jboss", "Red Hat:jboss_enterprise_application_platform:7.4::el9", "curl", "9"),
			before("sles5", "SUSE:Linux Enterprise Module for Basesystem 15 SP5", "curl", "9"),
			before("sles6", "SUSE:Linux Enterprise Module for Basesystem 15 SP6", "curl", "9"),
			before("leap", "openSUSE:Leap 15.5", "curl", "9"), before("azure3", "Azure Linux:3", "curl", "9"),
			before("azure2", "Azure Linux:2", "curl", "9"), before("photon5", "Photon OS:5.0", "curl", "9"),
			before("euler", "openEuler:22.03-LTS-SP3", "curl", "9"), before("mageia", "Mageia:9", "curl", "9"),
			before("wolfi", "Wolfi", "curl", "9"), before("guard", "Chainguard", "curl", "9"))
		for purl, want := range map[string]string{
			"pkg:rpm/rhel/curl@7-1?distro=rhel-9.4":                         "rhel9",
			"pkg:rpm/rhel/curl@7-1?distro=rhel-10.0":                        "rhel10",
			"pkg:rpm/rhel/curl@7-1?distro=rhel-8.9":                         "",
			"pkg:rpm/sles/curl@7-1?distro=sles-15.5":                        "sles5",
			"pkg:rpm/sles/curl@7-1?distro=sles-15.4":                        "",
			"pkg:rpm/opensuse-leap/curl@7-1?distro=opensuse-leap-15.5":      "leap",
			"pkg:rpm/opensuse-leap/curl@7-1?distro=opensuse-leap-15.6":      "",
			"pkg:rpm/azurelinux/curl@7-1?distro=azurelinux-3.0":             "azure3",
			"pkg:rpm/mariner/curl@7-1?distro=mariner-2.0":                   "azure2",
			"pkg:rpm/photon/curl@7-1?distro=photon-4.0":                     "",
			"pkg:rpm/photon/curl@7-1?distro=photon-5.0":                     "photon5",
			"pkg:rpm/openeuler/curl@7-1?distro=openeuler-22.03-LTS-SP3":     "euler",
			"pkg:rpm/openeuler/curl@7-1?distro=openeuler-24.03-LTS":         "",
			"pkg:rpm/mageia/curl@7-1?distro=mageia-9":                       "mageia",
			"pkg:apk/wolfi/curl@8-r0?arch=x86_64&distro=wolfi-20230201":     "wolfi",
			"pkg:apk/chainguard/curl@8-r0?distro=chainguard-20230214":       "guard",
			"pkg:apk/chainguard/curl@10-r0?distro=chainguard-20230214":      "",
			"pkg:rpm/fedora/curl@7-1?distro=fedora-42":                      "",
			"pkg:rpm/opensuse-tumbleweed/curl@7?distro=opensuse-tumbleweed": "",
		} {
			if got := s.findings(purl); got != want {
				t.Errorf("%s: findings %q, want %q", purl, got, want)
			}
			ecosystem := packageWith(t, purl).Ecosystem
			covered, err := s.CoveredEcosystems(t.Context(), store.Reach{Under: []resource.UID{s.org}}, []string{ecosystem})
			testkit.Must(t, err)
			if fixed := strings.Contains(purl, "@10"); covered[ecosystem] != (want != "" || fixed) {
				t.Errorf("%s: covered = %v", ecosystem, covered)
			}
		}
	})
}

// TestJars checks that an archive without a Maven group is compared with the only Maven package that fits, according to
// the advisories of the organization, whether the archive or the advisory comes first.
func TestJars(t *testing.T) {
	vulntest.Each(t, func(t *testing.T, db *vulntest.Store) {
		s := newStage(t, db)
		check := func(when string, want map[string]string) {
			t.Helper()
			for purl, ids := range want {
				if got := s.findings(purl); got != ids {
					t.Errorf("%s: %s has the findings %q, want %q", when, purl, got, ids)
				}
			}
		}
		const okio, beans = "pkg:jar/okio@1.15.0", "pkg:jar/spring-beans@5.3.17"
		const core = "pkg:jar/core@1.0?bundle=com.acme.core"
		check("without advisories", map[string]string{okio: "", beans: "", core: ""})
		s.advise(before("okio", "Maven", "com.squareup.okio:okio", "1.17.6"),
			before("beans", "Maven", "org.springframework:spring-beans", "5.3.18"),
			before("evil", "Maven", "org.evil:core", "2"))
		check("with advisories", map[string]string{okio: "okio", beans: "beans", core: "",
			"pkg:jar/okio@1.17.6": "", "pkg:jar/core@1.0?bundle=org.evil.core": "evil",
			"pkg:maven/com.squareup.okio/okio@1.15.0": "okio", "pkg:maven/com.example/okio@1.15.0": "",
			"pkg:jar/okio@1.15.0?vendor=com.example": "", "pkg:jar/core@1.0?bundle=com.acme.core&vendor=org.evil": "evil"})
		s.advise(before("other", "Maven", "com.example:okio", "9"))
		check("with two packages of the same name", map[string]string{okio: "", beans: "beans",
			"pkg:jar/okio@1.16.0?bundle=com.squareup.okio": "okio", "pkg:jar/okio@1.16.1?vendor=com.example": "other"})
		other := &stage{s.Store, t, s.matcher, newOrganization(t, s.Store, "other")}
		other.advise(before("other org", "Maven", "com.other:spring-beans", "9"))
		check("with an advisory of another organization", map[string]string{beans: "beans"})
		if got := other.findings(beans); got != "other org" {
			t.Errorf("the other organization has the findings %q", got)
		}
	})
}

// TestJarsAndOtherAuthors checks that an advisory in a folder does not change which Maven package an archive is for the
// advisories above, that a deleted advisory has no effect, and that the comparison of one organization leaves the
// packages compared for the others.
func TestJarsAndOtherAuthors(t *testing.T) {
	vulntest.Each(t, func(t *testing.T, db *vulntest.Store) {
		s := newStage(t, db)
		now := s.Time()
		folder := resource.Group{UID: s.org.NewChild(), Name: "folder", CreateTime: now, UpdateTime: now}
		_, err := s.InsertGroup(t.Context(), folder)
		testkit.Must(t, err)
		const okio = "pkg:jar/okio@1.15.0"
		check := func(when, want string) {
			t.Helper()
			if got := s.findings(okio); got != want {
				t.Errorf("%s: findings %q, want %q", when, got, want)
			}
		}
		s.advise(before("good", "Maven", "com.squareup.okio:okio", "1.17.6"))
		check("one package", "good")
		_, err = s.ImportAdvisories(t.Context(), folder.UID, "test",
			[]vuln.Advisory{
				before("below", "Maven", "com.squareup.okio:okio", "1.18"), before("evil", "Maven", "evil:okio", "9"),
			})
		testkit.Must(t, err)
		s.compare()
		check("two packages for the folder", "good")
		s.remove("evil")
		check("one package for the folder", "below good")
		s.advise(before("second", "Maven", "com.example:okio", "9"))
		check("two packages", "")
		s.advise(before("second", "Maven", "com.example:other", "9"))
		check("the second advisory changed", "below good")
		s.advise(before("third", "Maven", "com.example:okio", "9"))
		check("two packages again", "")

		other := &stage{s.Store, t, s.matcher, newOrganization(t, s.Store, "other")}
		_, err = s.ImportAdvisories(t.Context(), other.org, "test",
			[]vuln.Advisory{before("x", "Maven", "com.other:okio", "9")})
		testkit.Must(t, err)
		for range 100 { // every turn of the matcher
			did, err := s.matcher.Match(t.Context())
			testkit.Must(t, err)
			var waiting int
			testkit.Must(t, s.Row(t.Context(), `SELECT count(*) FROM packages WHERE NOT matched`, nil, &waiting))
			if waiting > 0 {
				t.Fatal("a package waits to be compared because of another organization's advisory")
			}
			if !did {
				break
			}
		}
		s.remove("third")
		check("the third advisory was deleted", "below good")
		if got := other.findings(okio); got != "x" {
			t.Errorf("the other organization has the findings %q", got)
		}
		s.remove("good")
		check("only the folder's advisory is left", "below")
	})
}

// remove deletes an advisory.
func (s *stage) remove(id string) {
	s.t.Helper()
	var uid resource.UID
	testkit.Must(s.t, s.Row(s.t.Context(), `SELECT uid FROM advisories WHERE advisory_id = $1`, []any{id}, &uid))
	testkit.Must(s.t, s.DeleteAdvisory(s.t.Context(), uid))
	s.compare()
}

// TestModuleStreams checks that an rpm in a module has findings only from advisories about its stream.
func TestModuleStreams(t *testing.T) {
	titled := func(a vuln.Advisory, title string) vuln.Advisory {
		a.Summary = title
		return a
	}
	vulntest.Each(t, func(t *testing.T, db *vulntest.Store) {
		s := newStage(t, db)
		s.advise(
			titled(before("base", "AlmaLinux:9", "php", "8.0.31-1.el9"), "Important: php security update"),
			titled(before("8.1", "AlmaLinux:9", "php", "8.1.30-1.module_el9.5.0+131"), "Moderate: php:8.1 security update"),
			titled(before("8.3", "AlmaLinux:9", "php", "8.3.12-1.module_el9.5.0+140"), "Moderate: php:8.3 security update"),
			titled(before("two", "AlmaLinux:9", "php", "9-1.module_el9"), "Low: virt:rhel and php:8.1 security update"),
			before("all", "AlmaLinux:9", "php", ""))
		const distro = "&distro=almalinux-9.5"
		for purl, want := range map[string]string{
			"pkg:rpm/almalinux/php@8.0.30-1.el9?arch=x86_64" + distro:                       "all base",
			"pkg:rpm/almalinux/php@8.1.27-1.module_el9.3.0%2B53?rpmmod=php:8.1" + distro:    "8.1 all two",
			"pkg:rpm/almalinux/php@8.1.30-1.module_el9.5.0%2B131?rpmmod=php:8.1" + distro:   "all two",
			"pkg:rpm/almalinux/php@8.3.1-1.module_el9.3.0%2B53?rpmmod=php:8.3:9:x" + distro: "8.3 all",
			"pkg:rpm/almalinux/php@8.1.27-1.module_el9.3.0%2B53?arch=x86_64" + distro:       "8.1 8.3 all two",
		} {
			if got := s.findings(purl); got != want {
				t.Errorf("%s: findings %q, want %q", purl, got, want)
			}
		}
	})
}
