package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

// maxMailed is the largest number of lines of each list in a message.
const maxMailed = 20

var severityNames = [...]string{finding.SeverityCritical: "critical", finding.SeverityHigh: "high",
	finding.SeverityMedium: "medium", finding.SeverityLow: "low", finding.SeverityUnknown: "unknown"}

// subject returns the end of the subject of a message with a report.
func (r Report) subject() string {
	c := r.Summary.Total
	switch {
	case r.Summary.Coverage.Extent == query.ExtentNothing:
		return "nothing is known"
	case c.Overdue.Sum() > 0:
		return fmt.Sprintf("%d open, %d overdue", c.Now.Sum(), c.Overdue.Sum())
	}
	return fmt.Sprintf("%d open", c.Now.Sum())
}

// text returns a report as plain text. It has no links, because other tenants may have chosen the names in it.
func (r Report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Counted on %s.\n\n", moment(r.Time))
	if r.Summary.Coverage.Extent == query.ExtentNothing {
		fmt.Fprintf(&b, "Nothing is known: %s. The number of findings is unknown, not 0.\n\n", unknown(r.Summary.Coverage))
	} else {
		r.writeCounts(&b)
	}
	b.WriteString("What was known:\n\n")
	for _, line := range coverage(r.Summary.Coverage) {
		b.WriteString("  " + line + "\n")
	}
	for _, gap := range r.Gaps {
		b.WriteString("  " + mail.Word(gap) + "\n")
	}
	b.WriteString("\n")
	writeList(&b, "The most urgent open findings", r.Open, r.Summary.Total.Now.Sum(), entryLine)
	writeList(&b, "Packages to update first", r.Packages, len(r.Packages), totalLine)
	writeList(&b, "Owners", r.Owners, r.All, shareLine)
	return b.String()
}

// writeCounts writes the numbers of findings.
func (r Report) writeCounts(b *strings.Builder) {
	c := r.Summary.Total
	row := func(name string, n int, more string) {
		fmt.Fprintf(b, "  %-17s %6d  %s\n", name, n, more)
	}
	row("open", c.Now.Sum(), bySeverity(c.Now))
	if c.Limited > 0 {
		row("overdue", c.Overdue.Sum(), bySeverity(c.Overdue))
	} else {
		fmt.Fprintf(b, "  %-17s %6s  no open finding must be fixed within a time\n", "overdue", "–")
	}
	row("with a fix", c.Fixable, "")
	fixTime := ""
	if n := r.Fixed.Sum(); n > 0 {
		fixTime = "open for " + days(r.FixTime/time.Duration(n)) + " on average"
	}
	row("fixed this month", r.Fixed.Sum(), fixTime)
	row("excepted", c.Excepted, "")
	if r.Summary.Coverage.Extent == query.ExtentPart {
		b.WriteString("\nNot everything was compared, so there may be more.\n")
	}
	b.WriteString("\n")
}

// bySeverity returns the numbers that are not 0, the most severe first.
func bySeverity(n query.BySeverity) string {
	var parts []string
	for severity, name := range severityNames {
		if n[severity] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[severity], name))
		}
	}
	slices.Reverse(parts)
	return strings.Join(parts, ", ")
}

// unknown returns why nothing was compared.
func unknown(c query.AnswerCoverage) string {
	switch {
	case c.Images == 0:
		return "there are no images with tags that you can see"
	case c.Packages.Packages > 0:
		return fmt.Sprintf("no advisory that you can see is about the ecosystem of one of the %d packages",
			c.Packages.Packages)
	case c.Indexed > 0:
		return "no packages were found in the images"
	}
	return "none of the images is inspected"
}

// coverage describes the knowledge behind a report, in lines.
func coverage(c query.AnswerCoverage) []string {
	images := fmt.Sprintf("%d images with tags: %d inspected, %d waiting to be inspected, %d not understood", c.Images,
		c.Indexed, c.Waiting, c.NotUnderstood)
	if !c.Oldest.IsZero() {
		images += ", the oldest waiting since " + moment(c.Oldest)
	}
	p := c.Packages
	lines := []string{images, fmt.Sprintf("%d packages: %d with advisories for their ecosystem, %d without, "+
		"%d not compared with the advisories yet", p.Packages, p.Covered, p.Bare, p.Waiting)}
	for i, f := range c.Feeds {
		if i == maxMailed {
			return append(lines, fmt.Sprintf("and %d other feeds", len(c.Feeds)-i))
		}
		line := "advisories of " + mail.Word(cmp.Or(f.Name, string(f.Format), "a list")) + ": "
		if f.Time.IsZero() {
			line += "never read"
		} else {
			line += moment(f.Time)
		}
		if f.Error != "" {
			line += ", cannot be read now"
		}
		lines = append(lines, line)
	}
	return lines
}

// writeList writes the first values of a list with a line for each. n is the number of all values.
func writeList[T any](b *strings.Builder, title string, values []T, n int, line func(T) string) {
	if len(values) == 0 {
		return
	}
	shown := values[:min(len(values), maxMailed)]
	if len(shown) < n {
		title += fmt.Sprintf(", %d of %d", len(shown), n)
	}
	b.WriteString(title + ":\n\n")
	for _, v := range shown {
		b.WriteString("  " + line(v) + "\n")
	}
	b.WriteString("\n")
}

func entryLine(v Entry) string {
	line := fmt.Sprintf("%-8s  %s  %s in %s, tag %s", severityNames[v.Severity], mail.Word(v.ID), mail.Word(v.Package),
		mail.Word(cmp.Or(v.Path, string(v.Repo))), mail.Word(v.Tag))
	if v.KEV {
		line += ", known to be exploited"
	}
	switch {
	case v.Overdue:
		line += ", overdue since " + v.Due.UTC().Format(time.DateOnly)
	case !v.Due.IsZero():
		line += ", due on " + v.Due.UTC().Format(time.DateOnly)
	}
	var owners []string
	for _, name := range v.Owners {
		owners = append(owners, mail.Word(name))
	}
	if len(owners) > 0 {
		line += "; " + strings.Join(owners, ", ")
	}
	return line
}

func totalLine(t Total) string {
	line := fmt.Sprintf("%s %s", mail.Word(t.Package.Name), mail.Word(t.Package.Version))
	if t.Advice != "" {
		line += " to " + mail.Word(t.Advice)
	} else {
		line += ", no fix is known"
	}
	return line + fmt.Sprintf(": %s", bySeverity(t.Open))
}

func shareLine(v Share) string {
	line := fmt.Sprintf("%s: %d open, %d fixed this month", mail.Word(cmp.Or(v.DisplayName, v.Name, string(v.Identity))),
		v.Open.Sum(), v.Fixed)
	if v.Limited > 0 {
		line += fmt.Sprintf(", %d overdue", v.Overdue)
	}
	return line
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// days returns a duration in days.
func days(d time.Duration) string { return fmt.Sprintf("%.1f days", d.Hours()/24) }
