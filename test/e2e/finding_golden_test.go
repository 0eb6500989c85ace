package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect/inspecttest"
)

// A fact is what a published advisory says about a package: the range of affected versions.
type fact struct{ id, alias, ecosystem, name, introduced, fixed string }

// facts are all statements, as of August 2026, in the databases of Go and AlmaLinux about the packages in the image of
// TestFindingsGolden, and about the same packages in another release. The Go database is by the Go authors (CC-BY
// 4.0), the AlmaLinux database by AlmaLinux OS (MIT). The texts of the advisories are not included.
var facts = []fact{
	{"GO-2020-0001", "CVE-2020-36567", "Go", "github.com/gin-gonic/gin", "0", "1.6.0"},
	{"GO-2021-0052", "CVE-2020-28483", "Go", "github.com/gin-gonic/gin", "0", "1.7.7"},
	{"GO-2023-1737", "CVE-2023-29401", "Go", "github.com/gin-gonic/gin", "1.3.1-0.20190301021747-ccb9e902956d", "1.9.1"},
	{"GO-2020-0015", "CVE-2020-14040", "Go", "golang.org/x/text", "0", "0.3.3"},
	{"GO-2021-0113", "CVE-2021-38561", "Go", "golang.org/x/text", "0", "0.3.7"},
	{"GO-2022-1059", "CVE-2022-32149", "Go", "golang.org/x/text", "0", "0.3.8"},
	{"GO-2026-5970", "CVE-2026-56852", "Go", "golang.org/x/text", "0", "0.39.0"},
	{"GO-2020-0017", "CVE-2020-26160", "Go", "github.com/dgrijalva/jwt-go", "0.0.0-20150717181359-44718f8a89b0", ""},
	{"GO-2020-0036", "CVE-2019-11254", "Go", "gopkg.in/yaml.v2", "0", "2.2.8"},
	{"GO-2021-0061", "CVE-2021-4235", "Go", "gopkg.in/yaml.v2", "0", "2.2.3"},
	{"GO-2022-0956", "CVE-2022-3064", "Go", "gopkg.in/yaml.v2", "0", "2.2.4"},
	{"ALSA-2022:6224", "", "AlmaLinux:9", "openssl-libs", "0", "1:3.0.1-41.el9_0"},
	{"ALSA-2022:7288", "", "AlmaLinux:9", "openssl-libs", "0", "1:3.0.1-43.el9_0"},
	{"ALSA-2023:0946", "", "AlmaLinux:9", "openssl-libs", "0", "1:3.0.1-47.el9_1"},
	{"ALSA-2023:2523", "", "AlmaLinux:9", "openssl-libs", "0", "1:3.0.7-6.el9_2"},
	{"ALSA-2023:3722", "", "AlmaLinux:9", "openssl-libs", "0", "1:3.0.7-16.el9_2"},
	{"ALSA-2024:0310", "CVE-2023-5363", "AlmaLinux:9", "openssl-libs", "0", "1:3.0.7-25.el9_3"},
	{"ALSA-2024:2447", "CVE-2024-0727", "AlmaLinux:9", "openssl-libs", "0", "1:3.0.7-27.el9"},
	{"ALSA-2024:6783", "", "AlmaLinux:9", "openssl-libs", "0", "1:3.0.7-28.el9_4"},
	{"ALSA-2024:9333", "", "AlmaLinux:9", "openssl-libs", "0", "1:3.2.2-6.el9_5"},
	{"ALSA-2025:1330", "", "AlmaLinux:9", "openssl-libs", "0", "1:3.2.2-6.el9_5.1"},
	{"ALSA-2025:21255", "", "AlmaLinux:9", "openssl-libs", "0", "1:3.5.1-4.el9_7"},
	{"ALSA-2026:1473", "", "AlmaLinux:9", "openssl-libs", "0", "1:3.5.1-7.el9_7"},
	{"ALSA-2026:19218", "", "AlmaLinux:9", "openssl-libs", "0", "1:3.5.5-2.el9_8"},
	{"ALSA-2026:22312", "", "AlmaLinux:9", "openssl-libs", "0", "1:3.5.5-3.el9_8"},
	{"ALSA-2026:25239", "", "AlmaLinux:9", "openssl-libs", "0", "1:3.5.5-4.el9_8"},
	{"ALSA-2026:1472", "", "AlmaLinux:10", "openssl-libs", "0", "1:3.5.1-7.el10_1.alma.1"},
	{"ALSA-2022:5242", "", "AlmaLinux:9", "vim-minimal", "0", "2:8.2.2637-16.el9_0.2"},
	{"ALSA-2022:5942", "", "AlmaLinux:9", "vim-minimal", "0", "2:8.2.2637-16.el9_0.3"},
	{"ALSA-2023:0958", "", "AlmaLinux:9", "vim-minimal", "0", "2:8.2.2637-20.el9_1"},
	{"ALSA-2024:9405", "", "AlmaLinux:9", "vim-minimal", "0", "2:8.2.2637-21.el9"},
	{"ALSA-2025:7440", "", "AlmaLinux:9", "vim-minimal", "0", "2:8.2.2637-22.el9_6"},
	{"ALSA-2025:17742", "", "AlmaLinux:9", "vim-minimal", "0", "2:8.2.2637-22.el9_6.1"},
	{"ALSA-2025:20945", "", "AlmaLinux:9", "vim-minimal", "0", "2:8.2.2637-23.el9_7"},
	{"ALSA-2026:5602", "", "AlmaLinux:9", "vim-minimal", "0", "2:8.2.2637-23.el9_7.1"},
	{"ALSA-2026:8259", "", "AlmaLinux:9", "vim-minimal", "0", "2:8.2.2637-23.el9_7.2"},
	{"ALSA-2026:11510", "", "AlmaLinux:9", "vim-minimal", "0", "2:8.2.2637-23.el9_7.3"},
	{"ALSA-2026:19224", "", "AlmaLinux:9", "vim-minimal", "0", "2:8.2.2637-26.el9_8.4"},
	{"ALSA-2026:22717", "", "AlmaLinux:9", "vim-minimal", "0", "2:8.2.2637-26.el9_8.5"},
	{"ALSA-2026:28209", "", "AlmaLinux:9", "vim-minimal", "0", "2:8.2.2637-26.el9_8.6"},
	{"ALSA-2026:38511", "", "AlmaLinux:9", "vim-minimal", "0", "2:8.2.2637-26.el9_8.10"},
	{"ALSA-2026:47982", "", "AlmaLinux:9", "vim-minimal", "0", "2:8.2.2637-26.el9_8.13"},
	{"ALSA-2025:21015", "", "AlmaLinux:10", "vim-minimal", "0", "2:9.1.083-6.el10_1"},
}

// goldenFindings are the expected findings of the image. A person derived them from the facts, and
// left out the facts whose fixed version is the version in the image or an earlier one:
//
//   - golang.org/x/text is 0.3.6: 0.3.3 comes before it; 0.39.0 comes after it.
//   - gopkg.in/yaml.v2 is 2.2.3, in which GO-2021-0061 is fixed.
//   - github.com/gin-gonic/gin is 1.3.0: GO-2023-1737 came with a commit after it.
//   - github.com/dgrijalva/jwt-go is 3.2.0+incompatible, and will never be fixed.
//   - openssl-libs is 1:3.0.7-25.el9_3, in which ALSA-2024:0310 is fixed. In the order of
//     rpm, 27.el9 comes after 25.el9_3, because 27 comes after 25.
//   - vim-minimal is 2:8.2.2637-26.el9_8.6: el9_8.10 and el9_8.13 come after it, because 10 and 13
//     come after 6.
//   - A finding is named after the CVE of its advisory, if it has one.
//   - The facts about AlmaLinux 10 do not apply to this image, nor do the facts about packages that
//     the image does not contain.
var goldenFindings = []string{
	"ALSA-2024:6783 openssl-libs 1:3.0.7-25.el9_3 fixed in 1:3.0.7-28.el9_4",
	"ALSA-2024:9333 openssl-libs 1:3.0.7-25.el9_3 fixed in 1:3.2.2-6.el9_5",
	"ALSA-2025:1330 openssl-libs 1:3.0.7-25.el9_3 fixed in 1:3.2.2-6.el9_5.1",
	"ALSA-2025:21255 openssl-libs 1:3.0.7-25.el9_3 fixed in 1:3.5.1-4.el9_7",
	"ALSA-2026:1473 openssl-libs 1:3.0.7-25.el9_3 fixed in 1:3.5.1-7.el9_7",
	"ALSA-2026:19218 openssl-libs 1:3.0.7-25.el9_3 fixed in 1:3.5.5-2.el9_8",
	"ALSA-2026:22312 openssl-libs 1:3.0.7-25.el9_3 fixed in 1:3.5.5-3.el9_8",
	"ALSA-2026:25239 openssl-libs 1:3.0.7-25.el9_3 fixed in 1:3.5.5-4.el9_8",
	"ALSA-2026:38511 vim-minimal 2:8.2.2637-26.el9_8.6 fixed in 2:8.2.2637-26.el9_8.10",
	"ALSA-2026:47982 vim-minimal 2:8.2.2637-26.el9_8.6 fixed in 2:8.2.2637-26.el9_8.13",
	"CVE-2019-11254 gopkg.in/yaml.v2 2.2.3 fixed in 2.2.8",
	"CVE-2020-26160 github.com/dgrijalva/jwt-go 3.2.0+incompatible fixed in ",
	"CVE-2020-28483 github.com/gin-gonic/gin 1.3.0 fixed in 1.7.7",
	"CVE-2020-36567 github.com/gin-gonic/gin 1.3.0 fixed in 1.6.0",
	"CVE-2021-38561 golang.org/x/text 0.3.6 fixed in 0.3.7",
	"CVE-2022-3064 gopkg.in/yaml.v2 2.2.3 fixed in 2.2.4",
	"CVE-2022-32149 golang.org/x/text 0.3.6 fixed in 0.3.8",
	"CVE-2024-0727 openssl-libs 1:3.0.7-25.el9_3 fixed in 1:3.0.7-27.el9",
	"CVE-2026-56852 golang.org/x/text 0.3.6 fixed in 0.39.0",
}

// goldenImage returns a layer of AlmaLinux 9 with a Go program.
func goldenImage(t *testing.T) string {
	t.Helper()
	program := inspecttest.GoProgram(t, "example.com/app", map[string]string{
		"golang.org/x/text": "v0.3.6", "gopkg.in/yaml.v2": "v2.2.3", "github.com/gin-gonic/gin": "v1.3.0",
		"github.com/dgrijalva/jwt-go": "v3.2.0+incompatible",
	})
	return layerOf(t, map[string]string{
		"etc/os-release": "ID=\"almalinux\"\nID_LIKE=\"rhel centos " +
			"fedora\"\nVERSION_ID=\"9.3\"\nPRETTY_NAME=\"AlmaLinux 9.3\"\n",
		"var/lib/rpm/rpmdb.sqlite": inspecttest.RPMSqlite(t,
			inspecttest.RPM{
				Name: "openssl-libs", Version: "3.0.7", Release: "25.el9_3", Epoch: 1, Source: "openssl-3.0.7-25.el9_3.src.rpm",
			},
			inspecttest.RPM{
				Name:    "vim-minimal",
				Version: "8.2.2637",
				Release: "26.el9_8.6",
				Epoch:   2,
				Source:  "vim-8.2.2637-26.el9_8.6.src.rpm",
			},
			inspecttest.RPM{
				Name: "not-in-any-advisory", Version: "1.0", Release: "1.el9", Source: "not-in-any-advisory-1.0-1.el9.src.rpm",
			}),
		"usr/bin/app": program,
	})
}

// record returns the fact as an OSV record.
func (f fact) record() []byte {
	kind, events := "ECOSYSTEM", fmt.Sprintf(`{"introduced":%q}`, f.introduced)
	if f.ecosystem == "Go" {
		kind = "SEMVER"
	}
	if f.fixed != "" {
		events += fmt.Sprintf(`,{"fixed":%q}`, f.fixed)
	}
	aliases := "[]"
	if f.alias != "" {
		aliases = fmt.Sprintf("[%q]", f.alias)
	}
	called := "aliases"
	if strings.HasPrefix(f.ecosystem, "AlmaLinux") {
		called = "related"
	}
	return fmt.Appendf(nil, `{"id":%q,"modified":"2026-01-02T03:04:05Z",%q:%s,"summary":"bad",`+
		`"affected":[{"package":{"ecosystem":%q,"name":%q},"ranges":[{"type":%q,"events":[%s]}]}]}`,
		f.id, called, aliases, f.ecosystem, f.name, kind, events)
}

// publishFacts imports the advisories for an ecosystem. If the folder in HOLDFAST_TEST_DATA contains the whole public
// database, it imports that, and otherwise the facts.
func (w *world) publishFacts(t *testing.T, group, ecosystem string) {
	t.Helper()
	if folder := os.Getenv("HOLDFAST_TEST_DATA"); folder != "" {
		name := "osv-" + strings.ToLower(ecosystem) + ".zip"
		archive, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		parts := []any{group, doc(name, len(archive))}
		for chunk := range slices.Chunk(archive, 1<<20) {
			parts = append(parts, chunk)
		}
		if _, st := w.takeIn(t, w.Token, parts...); st != nil {
			t.Fatal(st)
		}
		return
	}
	for _, f := range facts {
		if strings.HasPrefix(f.ecosystem, ecosystem) {
			w.publish(t, group, f.record())
		}
	}
}

// TestFindingsGolden checks that an image with known contents has exactly the packages and findings that a person
// derived from the published advisories. The Go advisories are imported before the image is pushed, the AlmaLinux
// advisories after it.
func TestFindingsGolden(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		g := newGallery(t, url)
		g.publishFacts(t, g.org, "Go")
		g.pushImage(t, "dev/folder/app", "golden", "amd64", goldenImage(t))
		g.await(t, "golden", findingspb.Inspection_STATE_INDEXED)
		g.publishFacts(t, g.org, "AlmaLinux")
		var got []string
		diff := "nothing was asked"
		procUntil(t, "the findings are as expected", func() bool {
			got = nil
			for p := (&findingspb.ListFindingsRequest{RepoUid: g.repo, Reference: "golden", PageSize: 200}); ; {
				m := must[*findingspb.ListFindingsResponse](t, g.overGRPC, g.Token, p)
				for _, f := range m.GetFindings() {
					// The version of stdlib depends on the Go version that runs this test.
					if f.GetPackage().GetName() == "stdlib" {
						continue
					}
					got = append(got, fmt.Sprintf("%s %s %s fixed in %s",
						f.GetAdvisoryId(), f.GetPackage().GetName(), f.GetPackage().GetVersion(),
						strings.Join(f.GetFixedVersions(), ",")))
				}
				if m.GetNextPageToken() == "" {
					break
				}
				p = &findingspb.ListFindingsRequest{PageToken: m.GetNextPageToken()}
			}
			slices.Sort(got)
			diff = cmp.Diff(goldenFindings, got)
			return diff == "" || len(got) > len(goldenFindings)
		})
		if diff != "" {
			t.Errorf("findings (-want +got):\n%s", diff)
		}
		for _, tt := range []struct {
			id   string
			want int64
		}{{"CVE-2021-38561", 1}, {"GO-2021-0113", 1}, {"ALSA-2024:2447", 1}, {"ALSA-2024:0310", 0}, {"CVE-2020-14040", 0},
			{"CVE-2024-0727", 1}, {"CVE-2023-5363", 0}} {
			m := must[*findingspb.ListAffectedImagesResponse](t, g.overGRPC, g.Token, &findingspb.ListAffectedImagesRequest{
				AdvisoryId: tt.id,
			})
			if m.GetTotalCount() != tt.want {
				t.Errorf("%s affects %d images, want %d", tt.id, m.GetTotalCount(), tt.want)
			}
		}
	})
}
