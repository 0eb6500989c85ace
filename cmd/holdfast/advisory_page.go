package main

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
)

// statusOfAdvisory is what became of a vulnerability: what its newest approved
// event says.
func statusOfAdvisory(m protoreflect.Message) string {
	a, ok := m.Interface().(*vulnpb.Advisory)
	if !ok {
		return ""
	}
	if a.GetDeleteTime() != nil {
		return "withdrawn"
	}
	status := ""
	for _, e := range a.GetEvents() { // oldest first
		if e.GetReviewState() == vulnpb.ReviewState_REVIEW_STATE_APPROVED {
			status = eventWord(e)
		}
	}
	return status
}

// eventWord is the type of an event in a word or two.
func eventWord(e *vulnpb.AdvisoryEvent) string {
	switch e.GetType().(type) {
	case *vulnpb.AdvisoryEvent_Detection_:
		return "detected"
	case *vulnpb.AdvisoryEvent_TruePositiveDetermination_:
		return "true positive"
	case *vulnpb.AdvisoryEvent_Fixed_:
		return "fixed"
	case *vulnpb.AdvisoryEvent_FalsePositiveDetermination_:
		return "false positive"
	case *vulnpb.AdvisoryEvent_AnalysisNotPlanned_:
		return "analysis not planned"
	case *vulnpb.AdvisoryEvent_FixNotPlanned_:
		return "fix not planned"
	case *vulnpb.AdvisoryEvent_PendingUpstreamFix_:
		return "pending upstream fix"
	case *vulnpb.AdvisoryEvent_Patched_:
		return "patched"
	}
	return "unknown"
}

// eventDetail is what an event tells beside its type.
func eventDetail(e *vulnpb.AdvisoryEvent) string {
	var parts []string
	add := func(format string, s string) {
		if s != "" {
			parts = append(parts, fmt.Sprintf(format, s))
		}
	}
	switch t := e.GetType().(type) {
	case *vulnpb.AdvisoryEvent_Detection_:
		add("by %s", t.Detection.GetScanv1().GetScanner())
		add("in %s", t.Detection.GetScanv1().GetComponent())
		add("as %s", t.Detection.GetNvdapi().GetCpeFound())
	case *vulnpb.AdvisoryEvent_Fixed_:
		add("in %s", t.Fixed.GetFixedVersion())
		add("%s", t.Fixed.GetNote())
	case *vulnpb.AdvisoryEvent_FalsePositiveDetermination_:
		if t.FalsePositiveDetermination.GetType() != 0 {
			add("%s", enumWord(t.FalsePositiveDetermination.GetType().Descriptor().Values().ByNumber(t.FalsePositiveDetermination.GetType().Number())))
		}
		add("%s", t.FalsePositiveDetermination.GetNote())
	case *vulnpb.AdvisoryEvent_Patched_:
		add("in %s", strings.Join(t.Patched.GetPatchedVersions(), ", "))
		add("%s", t.Patched.GetNote())
	case *vulnpb.AdvisoryEvent_TruePositiveDetermination_:
		add("%s", t.TruePositiveDetermination.GetNote())
	case *vulnpb.AdvisoryEvent_AnalysisNotPlanned_:
		add("%s", t.AnalysisNotPlanned.GetNote())
	case *vulnpb.AdvisoryEvent_FixNotPlanned_:
		add("%s", t.FixNotPlanned.GetNote())
	case *vulnpb.AdvisoryEvent_PendingUpstreamFix_:
		add("%s", t.PendingUpstreamFix.GetNote())
	}
	return strings.Join(parts, ": ")
}

// showAdvisory is the page of one advisory for a person.
func showAdvisory(a *app, m protoreflect.Message) {
	v, ok := m.Interface().(*vulnpb.Advisory)
	if !ok {
		return
	}
	line := func(format string, args ...any) { fmt.Fprintln(a.out, printable(fmt.Sprintf(format, args...))) }
	fmt.Fprintln(a.out, a.paint(bold, printable(v.GetAdvisoryId()))+"  "+printable(v.GetSummary()))
	fact := func(name, value string) {
		if value != "" {
			fmt.Fprintf(a.out, "  %s %s\n", a.paint(faint, fmt.Sprintf("%-10s", name)), printable(value))
		}
	}
	fact("uid", v.GetUid())
	fact("artifact", join(" ", v.GetArtifactName(), bracket(v.GetArtifactType()), v.GetArtifactArchitecture()))
	fact("component", join(" ", v.GetComponentName(), bracket(v.GetComponentType()), v.GetComponentLocation()))
	fact("aliases", strings.Join(v.GetAliases(), ", "))
	for _, s := range v.GetSeverities() {
		fact("severity", s.GetScore())
	}
	fact("status", statusOfAdvisory(m))
	fact("author", v.GetAuthor())
	fact("source", join(", ", v.GetSource().GetFormat(), v.GetSource().GetName()))
	fact("published", day(v.GetSource().GetPublishTime()))
	fact("modified", day(v.GetSource().GetModifyTime()))
	fact("withdrawn", day(v.GetDeleteTime()))
	if text := strings.TrimSpace(v.GetDetails()); text != "" {
		fmt.Fprintln(a.out)
		for text := range strings.SplitSeq(text, "\n") {
			line("  %s", text)
		}
	}
	a.showAffected(v)
	if len(v.GetEvents()) > 0 {
		fmt.Fprintln(a.out, "\n"+a.paint(bold, "timeline"))
	}
	for _, e := range v.GetEvents() {
		state := ""
		if e.GetReviewState() != vulnpb.ReviewState_REVIEW_STATE_APPROVED {
			state = " [" + enumWord(e.GetReviewState().Descriptor().Values().ByNumber(e.GetReviewState().Number())) + "]"
		}
		line("  %s  %s%s", day(e.GetCreateTime()), join("  ", eventWord(e), eventDetail(e), by(e)), state)
		line("              %s", e.GetUid())
	}
	if len(v.GetReferences()) > 0 {
		fmt.Fprintln(a.out, "\n"+a.paint(bold, "references"))
	}
	for _, r := range v.GetReferences() {
		line("  %-8s  %s", strings.ToLower(r.GetType()), r.GetUrl())
	}
}

// showAffected lists packages with their ranges.
func (a *app) showAffected(v *vulnpb.Advisory) {
	if len(v.GetAffected()) > 0 {
		fmt.Fprintln(a.out, "\n"+a.paint(bold, "affected"))
	}
	for _, p := range v.GetAffected() {
		var ranges []string
		for _, r := range p.GetRanges() {
			ranges = append(ranges, rangeText(r)...)
		}
		if n := len(p.GetVersions()); n > 0 {
			ranges = append(ranges, fmt.Sprintf("%d listed versions", n))
		}
		fmt.Fprintln(a.out, printable(fmt.Sprintf("  %s  %s  %s", p.GetEcosystem(), p.GetName(), strings.Join(ranges, ", "))))
	}
}

// rangeText writes the parts of a range as people do: from ≥1.0 up to <1.2.3.
func rangeText(r *vulnpb.AffectedRange) (parts []string) {
	from := ""
	for _, e := range r.GetEvents() {
		switch at := e.GetAt().(type) {
		case *vulnpb.RangeEvent_Introduced:
			if from != "" {
				parts = append(parts, from)
			}
			from = ">= " + at.Introduced
		case *vulnpb.RangeEvent_Fixed:
			parts, from = append(parts, join(" ", from, "< "+at.Fixed)), ""
		case *vulnpb.RangeEvent_LastAffected:
			parts, from = append(parts, join(" ", from, "<= "+at.LastAffected)), ""
		case *vulnpb.RangeEvent_Limit:
			parts, from = append(parts, join(" ", from, "up to "+at.Limit)), ""
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
	if s == "" {
		return ""
	}
	return "(" + s + ")"
}

func day(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Format("2006-01-02")
}

// join puts what is not empty together.
func join(sep string, parts ...string) string {
	var all []string
	for _, p := range parts {
		if p != "" {
			all = append(all, p)
		}
	}
	return strings.Join(all, sep)
}
