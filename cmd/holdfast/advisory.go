package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
)

// advisories is the commands of what is known of vulnerabilities.
func (a *app) advisories() *cobra.Command {
	n := advisories()
	cmd := a.noun(n)
	cmd.Short = "Read, write, import and export what is known of vulnerabilities"
	cmd.AddCommand(a.advisoryEvents(), a.importAdvisories(), a.exportAdvisories(), a.queryAdvisories(), a.noun(feeds()))
	return cmd
}

func advisories() noun {
	return noun{
		use: "advisories", one: "advisory", form: "ADVISORY",
		about: "Advisories tell which versions of which packages are vulnerable, and what became of it. They are imported\n" +
			"from what others publish, kept current by feeds, or written by hand.",
		example: "  holdfast advisories create openssl --parent acme --type apk --alias CVE-2026-1234 --affects Alpine:openssl@0..3.3.2-r1",
		writing: advisoryService("AdvisoryWritingService"),
		message: messageOf(&vulnpb.Advisory{}),
		locate:  findAdvisory, page: showAdvisory,
		argument: "artifact-name",
		asked:    []field{{flag: "id", path: "advisory_id", help: "`ID` to give it; one is made otherwise"}},
		fields: []field{
			{flag: "type", path: "artifact_type", help: "what the artifact is, the `TYPE` of a package URL such as apk or golang"},
			{flag: "architecture", path: "artifact_architecture", help: "`NAME` of the architecture it is for"},
			{flag: "component", path: "component_name", help: "`NAME` of the part of it that is vulnerable"},
			{flag: "component-type", path: "component_type", help: "`TYPE` of that part"},
			{flag: "component-location", path: "component_location", help: "`PATH` of that part in the artifact"},
			{flag: "author", path: "author", help: "`NAME` of who says so; you unless given"},
			{flag: "alias", path: "aliases", help: "another `ID` of the vulnerability, such as a CVE; can be repeated"},
			{flag: "summary", path: "summary", help: "what it is about, in one line of `TEXT`"},
			{flag: "details-file", path: "details", file: true, help: "`FILE` of what it is about; - is standard input"},
			{flag: "cvss", path: "severities", read: readCVSS, help: "CVSS `VECTOR` of version 2, 3 or 4; can be repeated"},
			{flag: "affects", path: "affected", read: readAffects, help: "versions that have it, as `ECOSYSTEM:NAME@INTRODUCED..FIXED`, such as Go:example.com/x@0..1.2.3; can be repeated"},
		},
		filters: advisoryFilters(),
		columns: []column{
			{name: "id", path: "advisoryId"}, {name: "artifact", path: "artifactName"}, {name: "type", path: "artifactType"},
			{name: "aliases", path: "aliases"}, {name: "status", text: statusOfAdvisory}, {name: "updateTime", path: "updateTime"},
		},
		wide: columnsOf("uid", "componentName", "author", "summary", "createTime", "deleteTime"),
	}
}

func advisoryFilters() []field {
	return []field{
		{flag: "id", path: "advisory_ids", help: "only those with this `ID`; can be repeated"},
		{flag: "legacy-id", path: "legacy_advisory_ids", help: "only those that had this `ID` before; can be repeated"},
		{flag: "artifact", path: "artifact_names", help: "only those about this artifact or package `NAME`; can be repeated"},
		{flag: "type", path: "artifact_types", help: "only those about artifacts of this `TYPE`; can be repeated"},
		{flag: "architecture", path: "artifact_architectures", help: "only those for this architecture `NAME`; can be repeated"},
		{flag: "component", path: "component_names", help: "only those about this component `NAME`; can be repeated"},
		{flag: "component-type", path: "component_types", help: "only those about components of this `TYPE`; can be repeated"},
		{flag: "component-location", path: "component_locations", help: "only those about a component at this `PATH`; can be repeated"},
		{flag: "alias", path: "aliases", help: "only those with this alias, an `ID`; can be repeated"},
		{flag: "origin", path: "origin", help: "only those about this artifact `NAME`"},
		{flag: "review-state", path: "event_review_states", help: "only those with an event in this `STATE`: pending, approved, request-changes or rejected"},
		{flag: "event-author", path: "event_authors", help: "only those with an event by this `NAME`; can be repeated"},
		{flag: "not-event-author", path: "exclude_event_authors", help: "only those without an event by this `NAME`; can be repeated"},
		{flag: "event-reviewer", path: "event_reviewers", help: "only those with an event reviewed by this `NAME`; can be repeated"},
		{flag: "event-type", path: "event_types", help: "only those with an event of this `TYPE`, such as fixed"},
		{flag: "latest-event", path: "latest_event_type", help: "only those whose newest approved event is of this `TYPE`"},
		{flag: "query", path: "query", help: "only those with this `TEXT` in their id, names or aliases"},
	}
}

// advisoryService is one of our own services of advisories.
func advisoryService(name protoreflect.Name) protoreflect.ServiceDescriptor {
	return advisoriespb.File_holdfast_advisories_v1_advisories_proto.Services().ByName(name)
}

// findAdvisory finds an advisory by its id.
func findAdvisory(ctx context.Context, a *app, text string) (string, error) {
	req := &vulnpb.ListAdvisoriesRequest{AdvisoryIds: []string{text}, PageSize: maxCandidates + 1}
	found, err := call(ctx, vulnpb.NewAdvisoriesServiceClient(a).ListAdvisories, req, nil)
	if err != nil {
		return "", err
	}
	switch all := found.GetAdvisories(); len(all) {
	case 0:
		return "", newProblem(exitNotFound, "there is no advisory %q that you can see", text).
			hint("to look for a part of its name: holdfast advisories list --query " + text)
	case 1:
		return all[0].GetUid(), nil
	default:
		p := usage("%d groups have an advisory %q", len(all), text).hint("give the uid of one:")
		for _, v := range all[:min(len(all), maxCandidates)] {
			p.hint(v.GetUid() + "  " + v.GetArtifactName())
		}
		return "", p
	}
}

// readCVSS reads CVSS vectors, which say of which version they are.
func readCVSS(m protoreflect.Message, texts []string) error {
	a := m.Interface().(*vulnpb.Advisory)
	a.Severities = nil
	for _, text := range texts {
		t := vulnpb.Severity_TYPE_CVSS_V2
		switch {
		case strings.HasPrefix(text, "CVSS:3"):
			t = vulnpb.Severity_TYPE_CVSS_V3
		case strings.HasPrefix(text, "CVSS:4"):
			t = vulnpb.Severity_TYPE_CVSS_V4
		}
		a.Severities = append(a.Severities, &vulnpb.Severity{Type: t, Score: text})
	}
	return nil
}

// readAffects reads packages with a range of versions each.
func readAffects(m protoreflect.Message, texts []string) error {
	a := m.Interface().(*vulnpb.Advisory)
	a.Affected = nil
	for _, text := range texts {
		at := strings.LastIndexByte(text, '@')
		if at < 0 {
			return fmt.Errorf("%q is not of the form ECOSYSTEM:NAME@INTRODUCED..FIXED", text)
		}
		ecosystem, name, named := strings.Cut(text[:at], ":")
		introduced, fixed, _ := strings.Cut(text[at+1:], "..")
		if release, rest, ok := strings.Cut(name, ":"); ok && strings.HasPrefix(release, "v") { // Alpine:v3.20:openssl
			ecosystem, name = ecosystem+":"+release, rest
		}
		if !named || introduced == "" {
			return fmt.Errorf("%q is not of the form ECOSYSTEM:NAME@INTRODUCED..FIXED", text)
		}
		r := &vulnpb.AffectedRange{Type: "ECOSYSTEM", Events: []*vulnpb.RangeEvent{{At: &vulnpb.RangeEvent_Introduced{Introduced: introduced}}}}
		if fixed != "" {
			r.Events = append(r.Events, &vulnpb.RangeEvent{At: &vulnpb.RangeEvent_Fixed{Fixed: fixed}})
		}
		a.Affected = append(a.Affected, &vulnpb.Affected{Ecosystem: ecosystem, Name: name, Ranges: []*vulnpb.AffectedRange{r}})
	}
	return nil
}

// queryAdvisories asks whether versions are affected.
func (a *app) queryAdvisories() *cobra.Command {
	var p advisoriespb.PackageVersion
	var parent string
	cmd := &cobra.Command{
		Use: "query [PURL...]", Short: "Tell which advisories affect a version of a package",
		Long: "Lists the advisories that affect the version, or versions, asked about. The exit code is 0 if there are none\n" +
			"and 3 if there are.",
		Example: "  holdfast advisories query pkg:golang/golang.org/x/net@v0.20.0\n" +
			"  holdfast advisories query --ecosystem Alpine:v3.20 --name openssl --version 3.3.1-r0",
		RunE: a.ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
			req := &advisoriespb.BatchQueryAdvisoriesRequest{}
			for _, purl := range args {
				req.Packages = append(req.Packages, &advisoriespb.PackageVersion{Purl: purl})
			}
			if p.GetName() != "" || p.GetEcosystem() != "" || p.GetVersion() != "" {
				req.Packages = append(req.Packages, proto.CloneOf(&p))
			}
			if len(req.GetPackages()) == 0 {
				return usage("a package URL is needed, or --ecosystem, --name and --version")
			}
			if err := a.within(ctx, parent, req); err != nil {
				return err
			}
			return a.query(ctx, req)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&p.Ecosystem, "ecosystem", "", "`NAME` of the ecosystem, as OSV has it: Go, npm, PyPI, Alpine:v3.20")
	f.StringVar(&p.Name, "name", "", "`NAME` of the package there")
	f.StringVar(&p.Version, "version", "", "`VERSION` of the package")
	a.registerRef(cmd, &parent, "parent", groups(), "only ask the advisories below this `GROUP`")
	return cmd
}

// query prints what affects the packages of a request.
func (a *app) query(ctx context.Context, req *advisoriespb.BatchQueryAdvisoriesRequest) error {
	found, err := call(ctx, advisoriespb.NewAdvisoryReadingServiceClient(a).BatchQueryAdvisories, req,
		map[string]string{"package.ecosystem": "--ecosystem", "package.name": "--name", "package.version": "--version"})
	if err != nil {
		return err
	}
	var matches []*advisoriespb.Match
	for _, r := range found.GetResults() {
		matches = append(matches, r.GetMatches()...)
	}
	err = showAll(a, view{
		plural:  "advisories that affect it",
		columns: columnsOf("id=advisoryId", "aliases", "fixed=fixedVersions", "summary"), wide: columnsOf("uid", "severities"),
	}, matches)
	if err != nil || len(matches) == 0 {
		return err
	}
	return newProblem(exitNo, "")
}
