package advisories

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
)

// statusOfAdvisory returns the type of the newest approved event.
func statusOfAdvisory(a *vulnpb.Advisory) string {
	if a.GetDeleteTime() != nil {
		return "withdrawn"
	}
	status := ""
	for _, e := range a.GetEvents() { // the oldest event is first
		if e.GetReviewState() == vulnpb.ReviewState_REVIEW_STATE_APPROVED {
			status = eventWord(e)
		}
	}
	return status
}

// eventWord returns the type of an event in a word or two.
func eventWord(e *vulnpb.AdvisoryEvent) string {
	fd := eventType(e)
	switch {
	case fd == nil:
		return "unknown"
	case fd.Name() == "detection":
		return "detected"
	}
	return strings.ReplaceAll(eventKind(fd), "-", " ")
}

func eventType(e *vulnpb.AdvisoryEvent) protoreflect.FieldDescriptor {
	return e.ProtoReflect().WhichOneof(noun.MessageOf(e).Oneofs().ByName("type"))
}

// eventDetail returns the details of an event other than its type.
func eventDetail(e *vulnpb.AdvisoryEvent) string {
	scan := e.GetDetection().GetScanv1()
	mismatch := e.GetFalsePositiveDetermination().GetType()
	reason := ""
	if mismatch != 0 {
		reason = output.EnumWord(mismatch.Descriptor().Values().ByNumber(mismatch.Number()))
	}
	note := ""
	if fd := eventType(e); fd != nil && fd.Message().Fields().ByName("note") != nil {
		note = e.ProtoReflect().Get(fd).Message().Get(fd.Message().Fields().ByName("note")).String()
		note = strings.TrimSpace(note)
	}
	return join(": ", prefixed("by ", scan.GetScanner()), prefixed("in ", scan.GetComponent()),
		prefixed("as ", e.GetDetection().GetNvdapi().GetCpeFound()), prefixed("in ", e.GetFixed().GetFixedVersion()),
		reason, prefixed("in ", strings.Join(e.GetPatched().GetPatchedVersions(), ", ")), note)
}

func prefixed(prefix, s string) string {
	if s != "" {
		s = prefix + s
	}
	return s
}

// showAdvisory prints a complete advisory for a person.
func showAdvisory(a *noun.App, m protoreflect.Message) {
	v := m.Interface().(*vulnpb.Advisory)
	line := func(indent, format string, args ...any) {
		fmt.Fprintln(a.Out, paragraph(indent, fmt.Sprintf(format, args...)))
	}
	fmt.Fprintln(a.Out, a.Paint(output.Bold, output.Printable(v.GetAdvisoryId()))+"  "+paragraph("  ", v.GetSummary()))
	fact := func(name, value string) {
		if value != "" {
			fmt.Fprintf(a.Out, "  %s %s\n", a.Paint(output.Faint, fmt.Sprintf("%-10s", name)),
				paragraph(strings.Repeat(" ", 13), value))
		}
	}
	fact("uid", v.GetUid())
	fact("artifact", join(" ", v.GetArtifactName(), bracket(v.GetArtifactType()), v.GetArtifactArchitecture()))
	fact("component", join(" ", v.GetComponentName(), bracket(v.GetComponentType()), v.GetComponentLocation()))
	fact("same as", strings.Join(v.GetAliases(), ", "))
	fact("fixes", strings.Join(v.GetFixes(), ", "))
	fact("rating", v.GetVendorSeverity())
	for _, s := range v.GetSeverities() {
		fact("severity", s.GetScore())
	}
	fact("status", statusOfAdvisory(v))
	fact("author", v.GetAuthor())
	fact("source", join(", ", v.GetSource().GetFormat(), v.GetSource().GetName()))
	fact("published", day(v.GetSource().GetPublishTime()))
	fact("modified", day(v.GetSource().GetModifyTime()))
	fact("withdrawn", day(v.GetDeleteTime()))
	if text := strings.TrimSpace(v.GetDetails()); text != "" {
		fmt.Fprintln(a.Out)
		line("  ", "  %s", text)
	}
	showAffected(a, v)
	heading(a, "timeline", len(v.GetEvents()))
	for _, e := range v.GetEvents() {
		state := ""
		if e.GetReviewState() != vulnpb.ReviewState_REVIEW_STATE_APPROVED {
			state = " [" + output.EnumWord(e.GetReviewState().Descriptor().Values().ByNumber(e.GetReviewState().Number())) + "]"
		}
		below := strings.Repeat(" ", 14)
		line(below, "  %s  %s%s", day(e.GetCreateTime()), join("  ", eventWord(e), eventDetail(e), by(e)), state)
		line(below, below+"%s", e.GetUid())
	}
	heading(a, "references", len(v.GetReferences()))
	for _, r := range v.GetReferences() {
		line("  ", "  %-8s  %s", strings.ToLower(r.GetType()), r.GetUrl())
	}
}

// paragraph returns a text of several lines for the screen. It indents the lines after
// the first, so that none of them looks like a line of this program.
func paragraph(indent, text string) string {
	lines := strings.Split(strings.TrimRight(text, "\r\n"), "\n")
	for i, s := range lines {
		s = output.Printable(strings.ReplaceAll(strings.TrimSuffix(s, "\r"), "\t", "    "))
		if i > 0 && s != "" {
			s = indent + s
		}
		lines[i] = s
	}
	return strings.Join(lines, "\n")
}

// heading prints the heading of a section with n lines, if n is not 0.
func heading(a *noun.App, text string, n int) {
	if n > 0 {
		fmt.Fprintln(a.Out, "\n"+a.Paint(output.Bold, text))
	}
}

// showAffected lists packages with their ranges.
func showAffected(a *noun.App, v *vulnpb.Advisory) {
	heading(a, "affected", len(v.GetAffected()))
	for _, p := range v.GetAffected() {
		var ranges []string
		for _, r := range p.GetRanges() {
			ranges = append(ranges, rangeText(r)...)
		}
		if n := len(p.GetVersions()); n > 0 {
			ranges = append(ranges, fmt.Sprintf("%d listed versions", n))
		}
		fmt.Fprintln(a.Out, output.Printable(fmt.Sprintf("  %s  %s  %s", p.GetEcosystem(), p.GetName(),
			strings.Join(ranges, ", "))))
	}
}

// rangeText returns the parts of a range, such as >= 1.0 < 1.2.3.
func rangeText(r *vulnpb.AffectedRange) (parts []string) {
	from := ""
	for _, e := range r.GetEvents() {
		switch event := e.GetAt().(type) {
		case *vulnpb.RangeEvent_Introduced:
			if from != "" {
				parts = append(parts, from)
			}
			from = ">= " + event.Introduced
		case *vulnpb.RangeEvent_Fixed:
			parts, from = append(parts, join(" ", from, "< "+event.Fixed)), ""
		case *vulnpb.RangeEvent_LastAffected:
			parts, from = append(parts, join(" ", from, "<= "+event.LastAffected)), ""
		case *vulnpb.RangeEvent_Limit:
			parts, from = append(parts, join(" ", from, "up to "+event.Limit)), ""
		}
	}
	if from != "" {
		parts = append(parts, from)
	}
	return parts
}

func by(e *vulnpb.AdvisoryEvent) string {
	if e.GetReviewer() != "" {
		return "(" + e.GetAuthor() + ", reviewed by " + e.GetReviewer() + ")"
	}
	return bracket(e.GetAuthor())
}

func bracket(s string) string {
	if s != "" {
		s = "(" + s + ")"
	}
	return s
}

func day(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Format("2006-01-02")
}

// join joins the parts that are not empty.
func join(sep string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), sep)
}
