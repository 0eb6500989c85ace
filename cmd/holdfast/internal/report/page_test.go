package report

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

var pageFile = flag.String("page", "", "write a page with many findings to this `FILE`")

// fill sets every field of a message, so that the page shows everything that it can show. Texts become text.
func fill(m protoreflect.Message, text string, depth int) {
	if t, ok := m.Interface().(*timestamppb.Timestamp); ok {
		t.Seconds = 1_790_000_000
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.IsMap() || f.ContainingOneof() != nil && !f.HasOptionalKeyword() || depth == 0 && f.Message() != nil {
			continue
		}
		value := func() protoreflect.Value {
			switch f.Kind() {
			case protoreflect.StringKind:
				return protoreflect.ValueOfString(text)
			case protoreflect.BoolKind:
				return protoreflect.ValueOfBool(true)
			case protoreflect.Int32Kind:
				return protoreflect.ValueOfInt32(7)
			case protoreflect.Int64Kind:
				return protoreflect.ValueOfInt64(7)
			case protoreflect.EnumKind:
				return protoreflect.ValueOfEnum(2)
			}
			return protoreflect.Value{}
		}
		switch {
		case f.IsList():
			list := m.Mutable(f).List()
			for range 2 {
				if f.Message() != nil {
					fill(list.AppendMutable().Message(), text, depth-1)
				} else if v := value(); v.IsValid() {
					list.Append(v)
				}
			}
		case f.Message() != nil:
			fill(m.Mutable(f).Message(), text, depth-1)
		default:
			if v := value(); v.IsValid() {
				m.Set(f, v)
			}
		}
	}
}

func filled(text string) *findingspb.Report {
	r := &findingspb.Report{}
	fill(r.ProtoReflect(), text, 4)
	r.Open[0].Overdue = false
	r.Coverage.Extent = findingspb.AnswerCoverage_EXTENT_PART
	return r
}

var texts = Texts{
	Coverage: func(c *findingspb.AnswerCoverage) string { return fmt.Sprintf("%d images with tags", c.GetImages()) },
	Unknown:  func(*findingspb.AnswerCoverage) string { return "there are no images here that you can see" },
}

func rendered(t *testing.T, r *findingspb.Report, name string) string {
	t.Helper()
	var b strings.Builder
	if err := newPage(r, name, texts).write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// skeleton returns the tags of a page with their attributes, without texts.
func skeleton(t *testing.T, page string) (tags []string) {
	t.Helper()
	for z := html.NewTokenizer(strings.NewReader(page)); ; {
		switch z.Next() {
		case html.ErrorToken:
			return tags
		case html.StartTagToken, html.SelfClosingTagToken, html.EndTagToken, html.CommentToken:
			tags = append(tags, z.Token().String())
		}
	}
}

// TestAttackNames: strangers choose the names in a report, because they push images, publish advisories and name
// groups. Whatever the names are, the page has the same tags and attributes, and no script.
func TestAttackNames(t *testing.T) {
	want := skeleton(t, rendered(t, filled("name"), "name"))
	all := strings.Join(want, "\n")
	if len(want) < 200 || strings.Contains(all, "<script") || strings.Contains(all, " src=") ||
		strings.Contains(all, "href=") {
		t.Fatalf("the page has %d tags, or a script or a link: %s", len(want), all)
	}
	for _, hostile := range []string{
		"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "'><svg onload=alert(1)>", "</style><script>", "-->",
		"</title><h1>", "{{.}}", "]]>", "<!--", "javascript:alert(1)", "&lt;b&gt;", `\u003cscript\u003e`, "\x00<b>", "</svg>",
		`" onmouseover="x`, "<base href=//evil>", "</textarea>", "`<b>`",
	} {
		if got := skeleton(t, rendered(t, filled(hostile), hostile)); strings.Join(got, "\n") != all {
			t.Errorf("%q changes the tags of the page", hostile)
		}
	}
	if page := rendered(t, filled("a\u202egnp.exe\x1b[2J"), "x"); strings.ContainsAny(page, "\u202e\x1b") {
		t.Error("a name changes the direction of text")
	}
}

// TestUnknown checks that a report without knowledge does not look like a report without findings.
func TestUnknown(t *testing.T) {
	none := &findingspb.Report{Counts: &findingspb.FindingCounts{}, FixedThisMonth: &findingspb.SeverityCounts{},
		Time: timestamppb.Now(), MonthTime: timestamppb.Now(),
		Coverage: &findingspb.AnswerCoverage{Extent: findingspb.AnswerCoverage_EXTENT_NOTHING}}
	page := rendered(t, none, "acme")
	if !strings.Contains(page, "Nothing is known:</b> there are no images here that you can see") ||
		strings.Contains(page, ">0</b>") || strings.Contains(page, "Nothing is overdue") {
		t.Errorf("unknown looks like zero: %s", page)
	}
	all := proto.Clone(none).(*findingspb.Report)
	all.Coverage.Extent = findingspb.AnswerCoverage_EXTENT_EVERYTHING
	page = rendered(t, all, "acme")
	for _, want := range []string{"<b>0</b>open", "overdue: no time limit applies", "It is not known what is late",
		"No finding was fixed since"} {
		if !strings.Contains(page, want) {
			t.Errorf("without findings and limits, %q is missing: %s", want, page)
		}
	}
	all.Counts.Limited, all.Counts.Overdue = 1, &findingspb.SeverityCounts{}
	if page := rendered(t, all, "acme"); !strings.Contains(page, "<b>0</b>overdue") ||
		!strings.Contains(page, "Nothing is overdue") {
		t.Errorf("with a limit, nothing overdue is not shown: %s", page)
	}
}

// TestSources checks that the page and the rows of CSV name the source of each severity that has one.
func TestSources(t *testing.T) {
	r := example()
	r.Open, r.Fixed = r.Open[:2], r.Fixed[:1]
	r.Open[0].SeveritySource, r.Open[1].SeveritySource, r.Fixed[0].SeveritySource = "AlmaLinux", "", "GitHub"
	page := rendered(t, r, "acme")
	for text, want := range map[string]int{"by AlmaLinux": 1, "by GitHub": 1, `<span class="quiet">by `: 2} {
		if n := strings.Count(page, text); n != want {
			t.Errorf("the page has %q %d times, want %d", text, n, want)
		}
	}
	var out bytes.Buffer
	a := &noun.App{Agent: &signin.Agent{Console: &output.Console{Out: bufio.NewWriter(&out)}}}
	if err := write(a, r, "csv", "acme", texts); err != nil {
		t.Fatal(err)
	}
	if err := a.Out.Flush(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{"state,severity,severityBy,", "overdue,critical,AlmaLinux,", "overdue,critical,,",
		"fixed,high,GitHub,"} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d of CSV is %s, want %s…", i, lines[i], want)
		}
	}
}

// TestCharts checks the sizes in charts.
func TestCharts(t *testing.T) {
	r := example()
	for _, b := range bars(r.GetCounts()) {
		if b.Late > b.Width || b.Width > barWidth || (b.Open > 0) != (b.Width > 0) {
			t.Errorf("%+v", b)
		}
	}
	h := history(r.GetSeries())
	if h.First != 11 || h.Last != 100 || h.Most != 100 || len(h.Areas) != 3 {
		t.Errorf("%+v", h)
	}
	if got, want := h.Areas[2].Points[:8], "0,160.2 "; got != want { // 11 of 100 below the upper end
		t.Errorf("the highest area starts at %q, want %q", got, want)
	}
	if history(r.GetSeries()[:1]) != nil || history(nil) != nil {
		t.Error("a single point has a chart")
	}
	if *pageFile != "" {
		if err := os.WriteFile(*pageFile, []byte(rendered(t, r, "acme/platform")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// example returns a report as a real group has it.
func example() *findingspb.Report {
	now := time.Date(2026, 11, 19, 8, 0, 0, 0, time.UTC)
	at := func(days int) *timestamppb.Timestamp { return timestamppb.New(now.AddDate(0, 0, -days)) }
	r := &findingspb.Report{Time: at(0), MonthTime: at(18), Group: "acme/platform", GroupUid: "0123",
		Counts: &findingspb.FindingCounts{Now: &findingspb.SeverityCounts{Open: 100, Critical: 10, High: 40, Medium: 50},
			Limited: 50, Overdue: &findingspb.SeverityCounts{Open: 12, Critical: 2, High: 10}, Fixable: 80, Excepted: 3},
		FixedThisMonth: &findingspb.SeverityCounts{Open: 4, High: 4},
		Coverage: &findingspb.AnswerCoverage{Extent: findingspb.AnswerCoverage_EXTENT_PART, Images: 40,
			Feeds: []*findingspb.FeedVersion{{Name: "almalinux", Time: at(1)}}},
		Owners: []*findingspb.ReportOwner{{DisplayName: "Ann Ba", Repos: 4, Open: &findingspb.SeverityCounts{Open: 90}}},
	}
	for i := range 90 {
		n := int64(i + 1)
		r.Series = append(r.Series, &findingspb.SummaryPoint{Time: at(89 - i),
			Counts: &findingspb.SeverityCounts{Open: n + 10, Critical: n / 9, High: n - n/9, Medium: 10}})
	}
	for i := range 60 {
		r.Open = append(r.Open, &findingspb.ReportFinding{AdvisoryId: fmt.Sprintf("CVE-2026-%d", 1000+i), Package: "openssl",
			Repo: "acme/platform/a-service-with-a-long-name", Tag: "2026.11.18-rc.1", Severity: findingspb.Severity(4 - i/20),
			Fixable: i%3 > 0, Kev: i == 0, OpenTime: at(i), DueTime: at(12 - i), Overdue: i < 12, Owners: []string{"Ann Ba"}})
	}
	for i := range 8 {
		r.Parts = append(r.Parts, &findingspb.ReportPart{Name: fmt.Sprintf("team-%d", i), FixedThisMonth: 2,
			Counts: &findingspb.FindingCounts{Now: &findingspb.SeverityCounts{Open: int64(20 - i), Critical: int64(i)}}})
		r.Packages = append(r.Packages, &findingspb.FindingTotal{Package: &findingspb.Package{Name: "openssl",
			Version: "3.0.7-27.el9"}, AdvisedVersion: "1:3.0.7-28.el9_4", ImageCount: 14,
			Open: &findingspb.SeverityCounts{Open: 12, Critical: 1}})
		r.Fixed = append(r.Fixed, &findingspb.ReportFinding{AdvisoryId: "CVE-2026-1", Package: "zlib", Repo: "acme/app",
			Tag: "v1", Severity: findingspb.Severity_SEVERITY_HIGH, OpenTime: at(30), FixedTime: at(i)})
	}
	return r
}
