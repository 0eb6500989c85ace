package report

import (
	"fmt"
	"strings"
	"time"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// severities are the severities in the order in which charts show them. The words are also the names of their colors.
var severities = []struct {
	Word  string
	count func(*findingspb.SeverityCounts) int64
}{
	{"critical", (*findingspb.SeverityCounts).GetCritical},
	{"high", (*findingspb.SeverityCounts).GetHigh},
	{"medium", (*findingspb.SeverityCounts).GetMedium},
	{"low", (*findingspb.SeverityCounts).GetLow},
	{"unknown", (*findingspb.SeverityCounts).GetUnknown},
}

// A Bar shows the open findings of a severity. Its parts have widths in units of the chart.
type Bar struct {
	Word          string
	Y, Text       int // positions of the bar and of its text
	Open, Overdue int64
	Width, Late   int
}

const (
	barSpace  = 30
	barWidth  = 420
	chartWide = 720
	chartHigh = 180
)

// bars returns a bar for each severity.
func bars(c *findingspb.FindingCounts) (all []Bar) {
	most := int64(1)
	for _, s := range severities {
		most = max(most, s.count(c.GetNow()))
	}
	for i, s := range severities {
		b := Bar{Word: s.Word, Y: i * barSpace, Text: i*barSpace + 17, Open: s.count(c.GetNow()),
			Overdue: s.count(c.GetOverdue())}
		b.Width, b.Late = share(b.Open, most, barWidth), share(b.Overdue, most, barWidth)
		all = append(all, b)
	}
	return all
}

// share returns the part n of all, in units of a chart. It is at least 2 if n is not 0, so that it is visible.
func share(n, all int64, width int) int {
	if n <= 0 {
		return 0
	}
	return max(int(n*int64(width)/max(all, 1)), 2)
}

// A History is a chart of the open findings over time. Areas are stacked.
type History struct {
	Areas       []Area
	Most        int64 // largest number
	From, Until time.Time
	First, Last int64 // open findings at the start and at the end
}

// An Area shows the findings of a severity over time. Points are the corners of a polygon, as SVG writes them.
type Area struct{ Word, Points string }

// history returns the chart of a series, or nil if it has less than two points.
func history(series []*findingspb.SummaryPoint) *History {
	if len(series) < 2 {
		return nil
	}
	h := &History{Most: 1, From: series[0].GetTime().AsTime(), Until: series[len(series)-1].GetTime().AsTime(),
		First: series[0].GetCounts().GetOpen(), Last: series[len(series)-1].GetCounts().GetOpen()}
	for _, p := range series {
		h.Most = max(h.Most, p.GetCounts().GetOpen())
	}
	below := make([]int64, len(series)) // findings of the severities below, at each point
	for i := len(severities) - 1; i >= 0; i-- {
		var upper, lower []string
		drawn := false
		for n, p := range series {
			x := n * chartWide / (len(series) - 1)
			lower = append(lower, fmt.Sprintf("%d,%.1f", x, h.height(below[n])))
			count := severities[i].count(p.GetCounts())
			below[n] += count
			drawn = drawn || count > 0
			upper = append(upper, fmt.Sprintf("%d,%.1f", x, h.height(below[n])))
		}
		for n := len(lower) - 1; n >= 0; n-- {
			upper = append(upper, lower[n])
		}
		if drawn {
			h.Areas = append(h.Areas, Area{severities[i].Word, strings.Join(upper, " ")})
		}
	}
	return h
}

// height returns the vertical position of a number.
func (h *History) height(n int64) float64 {
	return chartHigh - float64(n)*chartHigh/float64(h.Most)
}
