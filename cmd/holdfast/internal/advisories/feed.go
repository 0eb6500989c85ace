package advisories

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
)

func feeds() noun.Noun {
	return noun.Noun{
		Area: "advisories", Use: "feeds", One: "feed",
		About: "Feeds are the sources that the advisories of a group are kept current from: an https address, or a folder\n" +
			"or file of the server that its operator allows.",
		Example: "  holdfast advisories feeds create go --parent acme --address https://osv-vulnerabilities.storage.googleapis.com/Go/all.zip --interval 6h",
		Service: advisoryService("AdvisoryFeedsService"),
		Message: noun.MessageOf(&advisoriespb.AdvisoryFeed{}),

		Argument: "name",
		Fields: []noun.Field{
			{Flag: "address", Path: "address", Help: "`ADDRESS` of the source: https://…, or a path on the server"},
			{Flag: "interval", Path: "interval", Help: "`DURATION` between two looks, such as 30m, 6h or 1d"},
			{Flag: "paused", Path: "paused", Help: "do not look at it"},
		},
		Columns: []output.Column{
			{Name: "name", Path: "name"}, {Name: "uid", Path: "uid"}, {Name: "address", Path: "address"},
			{Name: "last", Path: "last.time"}, {Name: "result", Text: feedResult},
		},
		Wide: output.Columns("interval", "paused", "createTime", "updateTime"),
	}
}

// feedResult is what came of the last look, in a few words.
func feedResult(m protoreflect.Message) string {
	f, ok := m.Interface().(*advisoriespb.AdvisoryFeed)
	last := f.GetLast()
	switch {
	case !ok, last == nil:
		return "not read yet"
	case last.GetError() != "":
		return last.GetError()
	case last.GetUnchanged():
		return "unchanged"
	}
	return countsText(last.GetCounts())
}
