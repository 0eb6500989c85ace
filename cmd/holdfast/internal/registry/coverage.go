package registry

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// A covered response says what was known.
type covered interface {
	GetCoverage() *findingspb.AnswerCoverage
}

// without returns a function that returns the note below a table without rows. The note distinguishes that nothing was
// found from that nothing is known.
func without(plural string) func(proto.Message) string {
	return func(answer proto.Message) string {
		c, _ := answer.(covered)
		if c == nil {
			return "no " + plural
		}
		return emptyText(c.GetCoverage(), plural)
	}
}

func emptyText(c *findingspb.AnswerCoverage, plural string) string {
	switch c.GetExtent() {
	case findingspb.AnswerCoverage_EXTENT_NOTHING:
		return "nothing is known: " + whyUnknown(c)
	case findingspb.AnswerCoverage_EXTENT_PART:
		return "no known " + plural + ", but not everything was compared"
	}
	return "no " + plural
}

// whyUnknown returns why nothing was compared with advisories.
func whyUnknown(c *findingspb.AnswerCoverage) string {
	switch {
	case c.GetImages() == 0:
		return "there are no images here that you can see"
	case c.GetPackages().GetPackages() > 0:
		return "no advisory that you can see is about the ecosystem of one of the " +
			noun.Count(c.GetPackages().GetPackages(), "package")
	case c.GetIndexed() > 0:
		return "no packages were found in the images"
	}
	return fmt.Sprintf("of %s, none is inspected: %d waiting, %d not understood", noun.Count(c.GetImages(), "image"),
		c.GetWaiting(), c.GetNotUnderstood())
}

// coverageText describes the knowledge behind an answer about many images. which follows the word images, such as "with
// tags".
func coverageText(c *findingspb.AnswerCoverage, which string) string {
	said := strings.TrimSpace(noun.Count(c.GetImages(), "image")+" "+which) + fmt.Sprintf(": %d inspected", c.GetIndexed())
	if n := c.GetWaiting(); n > 0 {
		said += fmt.Sprintf(", %d waiting%s", n, backlogText(c, time.Now()))
	}
	if n := c.GetNotUnderstood(); n > 0 {
		said += fmt.Sprintf(", %d not understood", n)
	}
	return said + "; " + packageText(c.GetPackages())
}

// backlogText returns for how long the first of the waiting images has waited, and for how long the last will wait.
func backlogText(c *findingspb.AnswerCoverage, now time.Time) string {
	var said []string
	if t := c.GetOldestWaitingTime(); t != nil {
		said = append(said, "the oldest for "+days(max(now.Sub(t.AsTime()), 0)))
	}
	if t := c.GetWaitingEndTime(); t != nil {
		said = append(said, "all inspected in about "+days(max(t.AsTime().Sub(now), time.Second)))
	} else if len(said) > 0 {
		said = append(said, "the end is not known")
	}
	if len(said) == 0 {
		return ""
	}
	return " (" + strings.Join(said, ", ") + ")"
}

// packageText returns how many packages were compared.
func packageText(p *findingspb.Coverage) string {
	said := fmt.Sprintf("%s: %d with advisories for %s ecosystem, %d without", noun.Count(p.GetPackages(), "package"),
		p.GetCovered(), map[bool]string{true: "its", false: "their"}[p.GetPackages() == 1], p.GetNotCovered())
	if n := p.GetOwned(); n > 0 {
		said += fmt.Sprintf(", %d part of a package of the distribution", n)
	}
	if n := p.GetWaiting(); n > 0 {
		said += fmt.Sprintf("; %d not compared with the advisories yet", n)
	}
	return said
}

// shownFeeds is the number of feeds that the command prints.
const shownFeeds = 5

// sayCoverage prints what was known when a question was answered: images, packages and the versions of the feeds.
// which is as in coverageText.
func sayCoverage(a *noun.App, c *findingspb.AnswerCoverage, which string) {
	fmt.Fprintln(a.Err, coverageText(c, which))
	sayFeeds(a, c)
}

// sayFeeds prints the versions of the feeds.
func sayFeeds(a *noun.App, c *findingspb.AnswerCoverage) {
	var feeds []string
	for i, f := range c.GetFeeds() {
		if i == shownFeeds {
			feeds = append(feeds, fmt.Sprintf("%d more", len(c.GetFeeds())-i))
			break
		}
		text := strings.TrimSpace(f.GetName() + " " + f.GetFormat())
		if f.GetVersion() != "" {
			text += " " + f.GetVersion()
		}
		switch {
		case f.GetTime() == nil:
			text += ", never read"
		default:
			text += " of " + output.ShortTime(f.GetTime().AsTime())
		}
		if f.GetError() != "" {
			text += ", cannot be read now"
		}
		feeds = append(feeds, text)
	}
	if len(feeds) > 0 {
		fmt.Fprintln(a.Err, output.Printable("feeds: "+strings.Join(feeds, "; ")))
	}
}
