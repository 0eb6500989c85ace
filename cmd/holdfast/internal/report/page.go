package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

//go:embed page.html
var pageText string

// page is the HTML page. The package html/template escapes each value for the place where it stands.
var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"day": day, "days": days, "moment": moment, "name": output.Printable, "severity": severity, "join": strings.Join,
	"share": func(n, all int64) int { return share(n, all, 160) },
}).Parse(pageText))

// A Page is the data of an HTML page about a Report.
type Page struct {
	*findingspb.Report
	Title    string
	Nothing  string // why nothing is known; "" if something is
	Part     bool   // whether a part of the images or packages was not compared
	Known    string // what was known
	Feeds    string
	Bars     []Bar
	History  *History
	Late     []*findingspb.ReportFinding
	Others   []*findingspb.ReportFinding // open findings that are not overdue
	Busiest  int64                       // largest number of open findings in one part
	AllLate  int64
	Promised bool // whether some open finding must be fixed within a time
}

// newPage returns the page about a report. name is the name by which the user called the group.
func newPage(r *findingspb.Report, name string, t Texts) Page {
	p := Page{Report: r, Title: name, Known: t.Coverage(r.GetCoverage()), Feeds: feeds(r.GetCoverage()),
		Part: r.GetCoverage().GetExtent() == findingspb.AnswerCoverage_EXTENT_PART,
		Bars: bars(r.GetCounts()), History: history(r.GetSeries()), Busiest: 1,
		AllLate: r.GetCounts().GetOverdue().GetOpen(), Promised: r.GetCounts().GetLimited() > 0}
	if r.GetGroup() != "" {
		p.Title = r.GetGroup()
	}
	if r.GetCoverage().GetExtent() == findingspb.AnswerCoverage_EXTENT_NOTHING {
		p.Nothing = t.Unknown(r.GetCoverage())
	}
	for _, f := range r.GetOpen() {
		if f.GetOverdue() {
			p.Late = append(p.Late, f)
		} else {
			p.Others = append(p.Others, f)
		}
	}
	for _, part := range r.GetParts() {
		p.Busiest = max(p.Busiest, part.GetCounts().GetNow().GetOpen())
	}
	return p
}

// write writes the page.
func (p Page) write(w io.Writer) error { return page.Execute(w, p) }

// feeds returns the versions of the feeds and lists of the answer.
func feeds(c *findingspb.AnswerCoverage) string {
	var texts []string
	for _, f := range c.GetFeeds() {
		text := strings.TrimSpace(f.GetName() + " " + f.GetFormat() + " " + f.GetVersion())
		if f.GetTime() == nil {
			text += ", never read"
		} else {
			text += " of " + moment(f.GetTime())
		}
		if f.GetError() != "" {
			text += ", cannot be read now"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}

func severity(s findingspb.Severity) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "SEVERITY_"))
}

// day returns the day of a time in UTC, or "" if there is none.
func day(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Format(time.DateOnly)
}

func moment(t *timestamppb.Timestamp) string { return t.AsTime().Format("2006-01-02 15:04 UTC") }

// days returns a duration in days.
func days(d *durationpb.Duration) string {
	if d == nil {
		return "–"
	}
	n := d.AsDuration().Hours() / 24
	if n < 2 {
		return fmt.Sprintf("%.1f days", n)
	}
	return fmt.Sprintf("%.0f days", n)
}
