// Package advisories contains the commands about vulnerability advisories.
package advisories

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
)

// Command returns the commands about vulnerability advisories.
func Command(a *noun.App) *cobra.Command {
	n := advisories()
	cmd := a.Command(n)
	cmd.Short = "Import, query and export vulnerability advisories"
	cmd.AddCommand(advisoryEvents(a), importAdvisories(a), exportAdvisories(a), queryAdvisories(a), a.Command(feeds()),
		exploited(a), exploitListsCommand(a))
	return cmd
}

func advisories() noun.Noun {
	return noun.Noun{
		Use: "advisories", One: "advisory", Form: "ADVISORY",
		About: "Advisories describe which versions of packages are vulnerable, and the state of each vulnerability. They\n" +
			"are imported from files, updated by feeds, or written by hand.",
		Example: "  holdfast advisories create openssl --parent acme --type apk --alias CVE-2026-1234 " +
			"--affects Alpine:openssl@0..3.3.2-r1",
		Writing: advisoryService("AdvisoryWritingService"),
		Message: noun.MessageOf(&vulnpb.Advisory{}),
		Locate:  findAdvisory, Page: showAdvisory,
		Argument:    "artifact-name",
		CreateFlags: []noun.Field{{Flag: "id", Path: "advisory_id", Help: "`ID` of the advisory (default: generated)"}},
		Fields: []noun.Field{
			{Flag: "type", Path: "artifact_type",
				Help: "`TYPE` of the artifact, as in a package URL: apk, golang, …"},
			{Flag: "architecture", Path: "artifact_architecture", Help: "`NAME` of the architecture of the artifact"},
			{Flag: "component", Path: "component_name", Help: "`NAME` of the vulnerable component of the artifact"},
			{Flag: "component-type", Help: "`TYPE` of the component"},
			{Flag: "component-location", Help: "`PATH` of the component in the artifact"},
			{Flag: "author", Help: "`NAME` of the author (default: you)"},
			{Flag: "alias", Path: "aliases", Help: "other `ID` of the vulnerability, such as a CVE; can be repeated"},
			{Flag: "fixes", Help: "`ID` of a vulnerability that the advisory of a distribution fixes; can be repeated"},
			{Flag: "summary", Help: "summary, one line of `TEXT`"},
			{Flag: "details-file", Path: "details", File: true, Help: "`FILE` with the details; - is standard input"},
			{Flag: "cvss", Path: "severities", Read: readCVSS, Help: "CVSS `VECTOR` of version 2, 3 or 4; can be repeated"},
			{Flag: "affects", Path: "affected", Read: readAffects,
				Help: "affected versions as `ECOSYSTEM:NAME@INTRODUCED..FIXED`, such as Go:example.com/x@0..1.2.3; can " +
					"be repeated"},
		},
		Filters: advisoryFilters(),
		Columns: output.Columns("id=advisoryId", "artifact=artifactName", "type=artifactType", "aliases", "fixes",
			output.Text("status", statusOfAdvisory), "updateTime"),
		Wide: output.Columns("uid", "componentName", "author", "summary", "createTime", "deleteTime"),
	}
}

func advisoryFilters() []noun.Field {
	return []noun.Field{
		{Flag: "id", Path: "advisory_ids", Help: "only advisories with this `ID`; can be repeated"},
		{Flag: "legacy-id", Path: "legacy_advisory_ids", Help: "only advisories with this former `ID`; can be repeated"},
		{Flag: "artifact", Path: "artifact_names",
			Help: "only advisories about this artifact or package `NAME`; can be repeated"},
		{Flag: "type", Path: "artifact_types", Help: "only advisories about artifacts of this `TYPE`; can be repeated"},
		{Flag: "architecture", Path: "artifact_architectures",
			Help: "only advisories for this architecture `NAME`; can be repeated"},
		{Flag: "component", Path: "component_names", Help: "only advisories about this component `NAME`; can be repeated"},
		{Flag: "component-type", Path: "component_types",
			Help: "only advisories about components of this `TYPE`; can be repeated"},
		{Flag: "component-location", Path: "component_locations",
			Help: "only advisories about a component at this `PATH`; can be repeated"},
		{Flag: "alias", Path: "aliases", Help: "only advisories with `ID` as an alias; can be repeated"},
		{Flag: "origin", Help: "only advisories about this artifact `NAME`"},
		{Flag: "review-state", Path: "event_review_states",
			Help: "only advisories with an event in this `STATE`: pending, approved, request-changes or rejected"},
		{Flag: "event-author", Path: "event_authors", Help: "only advisories with an event by this `NAME`; can be repeated"},
		{Flag: "not-event-author", Path: "exclude_event_authors",
			Help: "only advisories without an event by this `NAME`; can be repeated"},
		{Flag: "event-reviewer", Path: "event_reviewers",
			Help: "only advisories with an event reviewed by this `NAME`; can be repeated"},
		{Flag: "event-type", Path: "event_types", Help: "only advisories with an event of this `TYPE`, such as fixed"},
		{
			Flag: "latest-event", Path: "latest_event_type",
			Help: "only advisories whose newest approved event is of this `TYPE`",
		},
		{Flag: "query", Help: "only advisories with this `TEXT` in their id, names or aliases"},
	}
}

// advisoryService returns a service of Holdfast's own advisory API.
func advisoryService(name protoreflect.Name) protoreflect.ServiceDescriptor {
	return advisoriespb.File_holdfast_advisories_v1_advisories_proto.Services().ByName(name)
}

// findAdvisory finds an advisory by its ID.
func findAdvisory(ctx context.Context, a *noun.App, text string) (string, error) {
	req := &vulnpb.ListAdvisoriesRequest{AdvisoryIds: []string{text}, PageSize: noun.MaxCandidates + 1}
	page, err := signin.Call(ctx, vulnpb.NewAdvisoriesServiceClient(a).ListAdvisories, req)
	if err != nil {
		return "", err
	}
	switch found := page.GetAdvisories(); len(found) {
	case 0:
		return "", problem.New(problem.ExitNotFound, "there is no advisory %q that you can see", text).
			Hint("to look for a part of its name: holdfast advisories list --query " + text)
	case 1:
		return found[0].GetUid(), nil
	default:
		p := problem.Usage("%d groups have an advisory %q", len(found), text).Hint("use the uid of one of these:")
		for _, v := range found[:min(len(found), noun.MaxCandidates)] {
			p = p.Hint(v.GetUid() + "  " + v.GetArtifactName())
		}
		return "", p
	}
}

// readCVSS parses CVSS vectors. Each vector starts with its CVSS version.
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

// readAffects parses packages with a range of versions.
func readAffects(m protoreflect.Message, texts []string) error {
	a := m.Interface().(*vulnpb.Advisory)
	a.Affected = nil
	for _, text := range texts {
		i := strings.LastIndexByte(text, '@')
		if i < 0 {
			return fmt.Errorf("%q is not of the form ECOSYSTEM:NAME@INTRODUCED..FIXED", text)
		}
		ecosystem, name, named := strings.Cut(text[:i], ":")
		introduced, fixed, _ := strings.Cut(text[i+1:], "..")
		// The ecosystem has a release, as in Alpine:v3.20:openssl.
		if release, rest, ok := strings.Cut(name, ":"); ok && strings.HasPrefix(release, "v") {
			ecosystem, name = ecosystem+":"+release, rest
		}
		if !named || introduced == "" {
			return fmt.Errorf("%q is not of the form ECOSYSTEM:NAME@INTRODUCED..FIXED", text)
		}
		r := &vulnpb.AffectedRange{Type: "ECOSYSTEM",
			Events: []*vulnpb.RangeEvent{{At: &vulnpb.RangeEvent_Introduced{Introduced: introduced}}}}
		if fixed != "" {
			r.Events = append(r.Events, &vulnpb.RangeEvent{At: &vulnpb.RangeEvent_Fixed{Fixed: fixed}})
		}
		a.Affected = append(a.Affected, &vulnpb.Affected{Ecosystem: ecosystem, Name: name,
			Ranges: []*vulnpb.AffectedRange{r}})
	}
	return nil
}

func queryAdvisories(a *noun.App) *cobra.Command {
	var p advisoriespb.PackageVersion
	var parent string
	cmd := &cobra.Command{
		Use: "query [PURL...]", Short: "List the advisories that affect a version of a package",
		Long: "Lists the advisories that affect the given versions. The exit code is 0 if there are none, and 3 otherwise.",
		Example: "  holdfast advisories query pkg:golang/golang.org/x/net@v0.20.0\n" +
			"  holdfast advisories query --ecosystem Alpine:v3.20 --name openssl --version 3.3.1-r0",
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
			req := &advisoriespb.BatchQueryAdvisoriesRequest{}
			for _, purl := range args {
				req.Packages = append(req.Packages, &advisoriespb.PackageVersion{Purl: purl})
			}
			if p.GetName() != "" || p.GetEcosystem() != "" || p.GetVersion() != "" {
				req.Packages = append(req.Packages, proto.CloneOf(&p))
			}
			if len(req.GetPackages()) == 0 {
				return problem.Usage("a package URL is needed, or --ecosystem, --name and --version")
			}
			if err := a.Within(ctx, parent, req); err != nil {
				return err
			}
			return query(ctx, a, req)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&p.Ecosystem, "ecosystem", "", "`NAME` of the ecosystem as in OSV: Go, npm, PyPI, Alpine:v3.20")
	f.StringVar(&p.Name, "name", "", "`NAME` of the package")
	f.StringVar(&p.Version, "version", "", "`VERSION` of the package")
	a.RegisterRef(cmd, &parent, "parent", noun.Groups(), "only advisories in `GROUP` and below it")
	return cmd
}

// query prints the advisories that affect the packages of a request.
func query(ctx context.Context, a *noun.App, req *advisoriespb.BatchQueryAdvisoriesRequest) error {
	found, err := signin.Call(ctx, advisoriespb.NewAdvisoryReadingServiceClient(a).BatchQueryAdvisories, req,
		"package.ecosystem=--ecosystem", "package.name=--name", "package.version=--version")
	if err != nil {
		return err
	}
	var matches []*advisoriespb.Match
	for _, r := range found.GetResults() {
		matches = append(matches, r.GetMatches()...)
	}
	err = noun.ShowAll(ctx, a, output.View{
		Plural:  "advisories that affect it",
		Columns: output.Columns("id=advisoryId", "aliases", "fixed=fixedVersions", "summary"),
		Wide:    output.Columns("uid", "severities"),
	}, matches)
	if err != nil || len(matches) == 0 {
		return err
	}
	return problem.New(problem.ExitNo, "")
}

func feeds() noun.Noun {
	return noun.Noun{
		Area: "advisories", Use: "feeds", One: "feed",
		Short: "Import advisories from published lists, again and again",
		About: "Feeds are the sources from which the advisories of a group are updated: an https address, or a file or\n" +
			"folder on the server that its operator allows. A feed of the format kev or epss updates the group's list of\n" +
			"exploited vulnerabilities instead.",
		Example: "  holdfast advisories feeds create go --parent acme --interval 6h \\\n" +
			"    --address https://osv-vulnerabilities.storage.googleapis.com/Go/all.zip\n" +
			"  holdfast advisories feeds create kev --format kev --parent acme --interval 6h \\\n" +
			"    --address https://www.cisa.gov/sites/default/files/feeds/known_exploited_vulnerabilities.json",
		Service: advisoryService("AdvisoryFeedsService"),
		Message: noun.MessageOf(&advisoriespb.AdvisoryFeed{}),

		Argument: "name",
		Fields: []noun.Field{
			{Flag: "address", Help: "`ADDRESS` of the source: https://…, or a path on the server"},
			{Flag: "format", Help: "`FORMAT` that it must have: kev or epss (default: detected from the content)"},
			{Flag: "interval", Help: "`DURATION` between updates, such as 30m, 6h or 1d"},
			{Flag: "paused", Help: "do not read the source"},
		},
		ByName: true,
		Columns: output.Columns("name", output.GroupOf("group", "uid"), "address", "last=last.time",
			output.Text("result", feedResult)),
		Wide:  output.Columns("uid", "format", "interval", "paused", "createTime", "updateTime"),
		Extra: []func(*noun.App) *cobra.Command{runFeed},
	}
}

func runFeed(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "run FEED", Short: "Read a feed now, before it is due",
		Long: "A server reads the feed within seconds. The column last of advisories feeds get shows the result.",
	}
	return a.About(feeds(), cmd, func(ctx context.Context, _ *cobra.Command, uid string) error {
		call := advisoriespb.NewAdvisoryFeedsServiceClient(a).RunAdvisoryFeed
		m, err := signin.Call(ctx, call, &advisoriespb.RunAdvisoryFeedRequest{Uid: uid}, "uid=FEED")
		if err != nil {
			return err
		}
		a.Note("%s will be read shortly", m.GetName())
		return nil
	})
}

// feedResult describes the result of the last import.
func feedResult(f *advisoriespb.AdvisoryFeed) string {
	last := f.GetLast()
	switch {
	case last == nil:
		return "not read yet"
	case last.GetError() != "":
		return last.GetError()
	case last.GetUnchanged():
		return "unchanged"
	}
	return countsText(last.GetCounts())
}
