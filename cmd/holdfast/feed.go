package main

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
)

func feeds() noun {
	return noun{
		area: "advisories", use: "feeds", one: "feed",
		about: "Feeds are the sources that the advisories of a group are kept current from: an https address, or a folder\n" +
			"or file of the server that its operator allows.",
		example: "  holdfast advisories feeds create go --parent acme --address https://osv-vulnerabilities.storage.googleapis.com/Go/all.zip --interval 6h",
		service: advisoryService("AdvisoryFeedsService"),
		message: messageOf(&advisoriespb.AdvisoryFeed{}),

		argument: "name",
		fields: []field{
			{flag: "address", path: "address", help: "`ADDRESS` of the source: https://…, or a path on the server"},
			{flag: "interval", path: "interval", help: "`DURATION` between two looks, such as 30m, 6h or 1d"},
			{flag: "paused", path: "paused", help: "do not look at it"},
		},
		columns: []column{
			{name: "name", path: "name"}, {name: "uid", path: "uid"}, {name: "address", path: "address"},
			{name: "last", path: "last.time"}, {name: "result", text: feedResult},
		},
		wide: columnsOf("interval", "paused", "createTime", "updateTime"),
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
