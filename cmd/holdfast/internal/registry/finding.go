package registry

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	holdfast "github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/report"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// Findings returns the commands about vulnerabilities of images.
func Findings(a *noun.App) *cobra.Command {
	return a.Branch("findings", "List vulnerabilities of images, and the images that an advisory affects",
		findingsList(a), findingsSummary(a), findingsTrend(a), findingsImages(a), findingsCompare(a), findingsBlast(a),
		exceptionsCommand(a), a.Command(rules()), a.Command(slas()), findingsExport(a),
		report.Command(a, report.Texts{
			Coverage: func(c *findingspb.AnswerCoverage) string { return coverageText(c, "with tags") },
			Unknown:  whyUnknown,
			Say:      func(c *findingspb.AnswerCoverage) { sayCoverage(a, c, "with tags") },
		}))
}

// Packages returns the commands about packages in images.
func Packages(a *noun.App) *cobra.Command {
	return a.Branch("packages", "Find images by their packages", packagesSearch(a))
}

// packagesOf returns the number of packages of an image, or the reason why it is unknown.
// It returns "" if the caller may not see it.
func packagesOf(i *findingspb.Inspection) string {
	if i == nil {
		return ""
	}
	switch i.GetState() {
	case findingspb.Inspection_STATE_WAITING:
		return "waiting"
	case findingspb.Inspection_STATE_INDEXED:
		return fmt.Sprint(i.GetCoverage().GetPackages()) + differences(i)
	case findingspb.Inspection_STATE_NOT_UNDERSTOOD:
		return "not understood: " + i.GetReason() + differences(i)
	default:
		return "not an image" + differences(i)
	}
}

func imagePackages() noun.Noun {
	layer := func(p *findingspb.ImagePackage) string {
		if p.GetLocation() == "" { // no file in the image lists the package
			return ""
		}
		return fmt.Sprint(p.GetLayer())
	}
	return noun.Noun{
		Area: "registry", Use: "packages", One: "package", Message: noun.MessageOf(&findingspb.ImagePackage{}),
		ID: "package.purl",
		Columns: output.Columns("name=package.name", "version=package.version", "ecosystem=package.ecosystem",
			output.Text("origin", origins), output.Text("layer", layer), "location"),
		Wide: output.Columns("purl=package.purl", "source=package.sourceName", "owned=package.owned"),
	}
}

func imagesPackages(a *noun.App) *cobra.Command {
	var p noun.Paging
	var architecture string
	cmd := &cobra.Command{
		Use: "packages REPO:TAG|REPO@DIGEST", Short: "List the packages of an image",
		Long: "Lists the packages found in the files of the image, with the file that lists each package and the layer\n" +
			"that added it (the lowest is 0), and the packages listed in attached SBOMs. The origin is index for\n" +
			"packages found in files, sbom for packages listed in an SBOM, or both.",
		Example: "  holdfast registry images packages acme/platform/app:1.2",
	}
	p.Register(cmd)
	cmd.Flags().StringVar(&architecture, "architecture", "", "`ARCHITECTURE` of an image with several (default: amd64)")
	return aboutImage(a, cmd, func(ctx context.Context, at image) error {
		answer, err := a.PrintAnswer(ctx, imagePackages(), &findingspb.ListPackagesRequest{
			RepoUid: at.repo, Reference: cmp.Or(at.digest, at.tag, "latest"), Architecture: architecture,
		}, p, func(proto.Message) string { return "no packages were found in the image" })
		if err != nil {
			return err
		}
		sayCoverage(a, answer.(covered).GetCoverage(), "")
		return nil
	})
}

func findings() noun.Noun {
	severity := func(f *findingspb.Finding) string { return severityWord(f.GetSeverity()) }
	fixed := func(f *findingspb.Finding) string {
		return cmp.Or(f.GetAdvisedVersion(), f.GetFixedVersion(), strings.Join(f.GetFixedVersions(), ", "))
	}
	kev := func(f *findingspb.Finding) string { return output.Exploited(f.GetKev(), f.GetKevRansomware()) }
	epss := func(f *findingspb.Finding) string { return output.Probability(f.Epss) }
	return noun.Noun{
		Area: "findings", Use: "findings", One: "finding", Message: noun.MessageOf(&findingspb.Finding{}), ID: "advisory_id",
		Columns: output.Columns(
			output.Text("vulnerability", vulnerability).Whole(), output.Text("severity", severity).Whole(),
			output.Columns("score")[0].Spare(), output.Text("kev", kev), output.Text("epss", epss).Spare(),
			output.Columns("package=package.name")[0].Wrapped(), output.Columns("version=package.version")[0].Wrapped(),
			output.Text("fixed", fixed).Wrapped(),
			output.Text("evidence", evidence).Whole()),
		Wide: output.Columns("severityBy=severitySource", output.Text("ratings", ratings),
			"advisory=advisoryId", "aliases", "fixedVersion", "state", "until=exceptionExpireTime",
			"exception=exceptionUid", "purl=package.purl", "summary", "firstSeenTime", "openedBy", "closeTime",
			"closeReason", "closedBy", "origin", "location", "layer"),
	}
}

// vulnerability returns the name under which a finding is known best: a CVE, if it has one.
func vulnerability(f *findingspb.Finding) string {
	for _, name := range append([]string{f.GetAdvisoryId()}, f.GetAliases()...) {
		if strings.HasPrefix(name, "CVE-") {
			return name
		}
	}
	return f.GetAdvisoryId()
}

// evidence returns an advisory that describes the vulnerability, and the number of other advisories.
func evidence(f *findingspb.Finding) string {
	var names []string
	for _, e := range f.GetEvidence() {
		names = append(names, e.GetAdvisoryId())
	}
	switch len(names) {
	case 0:
		return ""
	case 1:
		return names[0]
	}
	return fmt.Sprintf("%s +%d", names[0], len(names)-1)
}

// findingsIn returns the Noun for findings. If states includes closed, the Noun has
// columns for the time and the reason of the closing.
func findingsIn(states []findingspb.State) noun.Noun {
	n := findings()
	if !slices.Contains(states, findingspb.State_STATE_CLOSED) {
		return n
	}
	why := func(f *findingspb.Finding) string {
		name := strings.TrimPrefix(f.GetCloseReason().String(), "CLOSE_REASON_")
		if f.GetState() != findingspb.State_STATE_CLOSED {
			name = ""
		}
		return strings.ReplaceAll(strings.ToLower(name), "_", " ")
	}
	n.Columns = append(n.Columns, output.Columns("closed=closeTime", output.Text("why", why))...)
	return n
}

// withDue adds the column for the time by which a finding must be fixed, if the request asks for it.
func withDue(n noun.Noun, req *findingspb.ListFindingsRequest) noun.Noun {
	if req.GetDueTimes() || req.GetOverdue() {
		n.Columns = append(n.Columns, output.Columns("due=dueTime")...)
	}
	return n
}

// findingsWord returns the name of the findings that a request selects, for the text below an empty table.
func findingsWord(req *findingspb.ListFindingsRequest) string {
	if req.GetOverdue() {
		return "overdue findings"
	}
	return "findings"
}

// sayNoDue prints why it is not known by when the findings must be fixed.
func sayNoDue(a *noun.App, answer proto.Message) {
	m, _ := answer.(interface{ GetDueTimesUnknown() string })
	if m != nil && m.GetDueTimesUnknown() != "" {
		a.Note("it is not known by when findings must be fixed: %s", m.GetDueTimesUnknown())
	}
}

// A findingsQuery contains the arguments of `findings list`.
type findingsQuery struct {
	*noun.App
	req                *findingspb.ListFindingsRequest
	severities, states []string
	asOf, wait, by     string
	argument           string // the image, as the user names it
	at                 place
	page               noun.Paging
}

func findingsList(a *noun.App) *cobra.Command {
	q := &findingsQuery{App: a, req: &findingspb.ListFindingsRequest{}}
	cmd := &cobra.Command{
		Use:   "list REPO:TAG|REPO@DIGEST|--repo REPO|--group GROUP",
		Short: "List the findings of images, most urgent first",
		Long: "Lists the vulnerabilities in the packages of an image: known to be exploited (KEV) first, then\n" +
			"fixable, then by the probability of exploitation (EPSS), then by severity. A finding is one\n" +
			"vulnerability of one package; the advisories that describe or fix it are its evidence. A package\n" +
			"without a finding is only known to be safe if there are advisories for its ecosystem: the last lines, on\n" +
			"standard error, count the packages for which there are, and name the feeds. Directly after a push, the\n" +
			"command waits until the image is inspected.",
		Example: "  holdfast findings list acme/platform/app:1.2 --severity critical,high --fixable\n" +
			"  holdfast findings list acme/platform/app:1.2 --at 2026-01-31T12:00:00Z\n" +
			"  holdfast findings list acme/platform/app:1.2 --state closed\n" +
			"  holdfast findings list acme/platform/app:1.2 --by package\n" +
			"  holdfast findings list --group acme/platform --kev\n" +
			"  holdfast findings list --group acme/platform --overdue\n" +
			"  holdfast findings list --group acme/platform --by package",
	}
	q.register(cmd)
	runImage := aboutImage(a, cmd, q.listImage).RunE
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if q.at != (place{}) {
			return cobra.NoArgs(cmd, args)
		}
		return cobra.ExactArgs(1)(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if q.req.Severities, err = parseSeverities(q.severities); err != nil {
			return err
		}
		if err := q.check(cmd); err != nil {
			return err
		}
		if q.at == (place{}) {
			q.argument = args[0]
			return runImage(cmd, args)
		}
		return a.Ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			if q.by != "" {
				return q.listTotals(ctx)
			}
			return listGroup(ctx, a, &q.at, q.req, q.page)
		})(cmd, args)
	}
	return cmd
}

func (q *findingsQuery) register(cmd *cobra.Command) {
	q.page.Register(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&q.severities, "severity", nil, "only these `SEVERITIES`: critical, high, medium, low, unknown")
	f.StringSliceVar(&q.states, "state", []string{"open"},
		"only these `STATES`: open, excepted, or closed (for one image)")
	f.StringVar(&q.asOf, "at", "", "findings that were open at `TIME`, or that long ago")
	f.BoolVar(&q.req.Fixable, "fixable", false, "only findings with a fixed version")
	f.BoolVar(&q.req.Kev, "kev", false, "only findings that are known to be exploited")
	f.BoolVar(&q.req.DueTimes, "due", false, "show by when each finding must be fixed")
	f.BoolVar(&q.req.Overdue, "overdue", false, "only findings that should be fixed by now (see `findings sla`)")
	f.StringVar(&q.req.Package, "package", "", "only findings of the package, or source package, with `NAME`")
	f.StringVar(&q.req.Architecture, "architecture", "", "`ARCHITECTURE` of an image with several (default: amd64)")
	f.StringVar(&q.wait, "wait", "10s", "wait up to `DURATION` until the image is inspected and compared")
	f.StringVar(&q.by, "by", "",
		"add up the open findings by `WHAT`: package, with one fix for each, vulnerability or image")
	q.at.register(q.App, cmd)
}

// check returns an error if the arguments do not fit together. It also reads the states and the time.
func (q *findingsQuery) check(cmd *cobra.Command) error {
	switch {
	case q.by != "" && q.at == (place{}) &&
		slices.ContainsFunc([]string{"limit", "skip", "order-by"}, cmd.Flags().Changed):
		return problem.Usage("--by adds up all findings of an image; it cannot be used with --limit, --skip or --order-by")
	case q.by != "" && cmd.Flags().Changed("state"):
		return problem.Usage("--by adds up open findings, so it cannot be used with --state")
	case q.asOf != "" && q.at != (place{}):
		return problem.Usage("--at needs one image")
	}
	return askStates(q.req, q.states, q.asOf)
}

// listImage lists the findings of an image.
func (q *findingsQuery) listImage(ctx context.Context, at image) error {
	q.req.RepoUid, q.req.Reference = at.repo, cmp.Or(at.digest, at.tag, "latest")
	if err := awaitFindings(ctx, q.App, q.req, q.wait); err != nil {
		return err
	}
	if q.by != "" {
		return q.listImageTotals(ctx)
	}
	n := withDue(findingsIn(q.req.GetStates()), q.req)
	answer, err := q.PrintAnswer(ctx, n, q.req, q.page, without(findingsWord(q.req)))
	if err != nil {
		return err
	}
	sayNoDue(q.App, answer)
	return sayImageCoverage(ctx, q.App, q.req)
}

// awaitFindings waits until an image is inspected and its packages are compared with the advisories, but not longer
// than a time. It does not report other problems, because the list reports them.
func awaitFindings(ctx context.Context, a *noun.App, list *findingspb.ListFindingsRequest, wait string) error {
	limit, err := noun.ParseDuration(wait)
	if err != nil {
		return problem.Usage("--wait: %v", err)
	}
	req := &findingspb.ListFindingsRequest{
		RepoUid: list.GetRepoUid(), Reference: list.GetReference(), Architecture: list.GetArchitecture(), PageSize: 1,
	}
	for begin, told := time.Now(), false; list.GetAtTime() == nil && time.Since(begin) < limit; told = true {
		m, err := findingspb.NewFindingsServiceClient(a).ListFindings(ctx, req)
		if err != nil && !isNotIndexed(err) || err == nil && m.GetCoverage().GetPackages().GetWaiting() == 0 {
			return nil
		}
		if !told {
			a.Note("waiting up to %s until the image is inspected", wait)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(awaitInterval):
		}
	}
	return nil
}

// awaitInterval is the time between two questions whether an image is inspected.
const awaitInterval = 250 * time.Millisecond

// isNotIndexed reports whether a call failed because an image waits to be inspected.
func isNotIndexed(err error) bool {
	unmet, _ := holdfast.Detail[*errdetails.PreconditionFailure](err)
	return slices.ContainsFunc(unmet.GetViolations(), func(v *errdetails.PreconditionFailure_Violation) bool {
		return v.GetType() == "IMAGE_NOT_INDEXED"
	})
}

// askStates sets the states and the time of a request.
func askStates(req *findingspb.ListFindingsRequest, states []string, asOf string) error {
	for _, s := range states {
		n, err := noun.ParseEnum(findingspb.State(0).Descriptor(), strings.TrimSpace(s))
		if err != nil {
			return problem.Usage("--state: %v", err)
		}
		req.States = append(req.States, findingspb.State(n))
	}
	if asOf == "" {
		return nil
	}
	moment, err := noun.ParseMoment(asOf, time.Now())
	req.AtTime = timestamppb.New(moment)
	return err
}

// sayImageCoverage prints how many packages the findings of an image cover.
func sayImageCoverage(ctx context.Context, a *noun.App, req *findingspb.ListFindingsRequest) error {
	m, err := signin.Call(ctx, findingspb.NewFindingsServiceClient(a).ListFindings, &findingspb.ListFindingsRequest{
		RepoUid: req.GetRepoUid(), Reference: req.GetReference(), Architecture: req.GetArchitecture(), PageSize: 1,
		States: []findingspb.State{findingspb.State_STATE_EXCEPTED}, AtTime: req.GetAtTime(),
	})
	if err == nil && slices.Contains(req.GetStates(), findingspb.State_STATE_CLOSED) {
		err = sayIncomplete(ctx, a, req)
	}
	if err != nil {
		return err
	}
	said := packageText(m.GetInspection().GetCoverage())
	said += differences(m.GetInspection())
	if m.GetInspection().GetState() == findingspb.Inspection_STATE_NOT_UNDERSTOOD {
		said += "; the image itself is not understood: " + m.GetInspection().GetReason()
	}
	if platforms := m.GetInspection().GetOtherPlatforms(); len(platforms) > 0 {
		a.Note("only the image for %s is shown; the index also has images for %s: use --architecture",
			m.GetInspection().GetPlatform(), strings.Join(platforms, ", "))
	}
	if n := len(m.GetInspection().GetWarnings()); n > 0 {
		said += "; " + noun.Count(n, "file") + " not understood"
	}
	if n := m.GetTotalCount(); n > 0 && !slices.Contains(req.GetStates(), findingspb.State_STATE_EXCEPTED) {
		said += "; " + noun.Count(n, "excepted finding") + " (--state excepted)"
	}
	fmt.Fprintln(a.Err, said)
	sayFeeds(a, m.GetCoverage())
	return nil
}

// sayIncomplete prints why closed findings may be missing.
func sayIncomplete(ctx context.Context, a *noun.App, req *findingspb.ListFindingsRequest) error {
	m, err := signin.Call(ctx, findingspb.NewFindingsServiceClient(a).ListFindings, &findingspb.ListFindingsRequest{
		RepoUid: req.GetRepoUid(), Reference: req.GetReference(), Architecture: req.GetArchitecture(), PageSize: 1,
		States: []findingspb.State{findingspb.State_STATE_CLOSED},
	})
	if m.GetIncomplete() != "" {
		fmt.Fprintln(a.Err, "some closed findings are unknown: "+m.GetIncomplete())
	}
	return err
}

// affectedImages returns the Noun for images that contain a package.
func affectedImages() noun.Noun {
	packages := func(i *findingspb.AffectedImage) string {
		var names []string
		for _, p := range i.GetPackages() {
			names = append(names, p.GetName()+" "+p.GetVersion())
		}
		slices.Sort(names)
		return strings.Join(slices.Compact(names), ", ")
	}
	before := func(i *findingspb.AffectedImage) string {
		var tags []string
		for _, t := range i.GetPastTags() {
			tags = append(tags, t.GetTag()+" until "+output.ShortTime(t.GetEndTime().AsTime()))
		}
		return strings.Join(tags, ", ")
	}
	return noun.Noun{
		Area: "findings", Use: "images", One: "image", Message: noun.MessageOf(&findingspb.AffectedImage{}), ID: "digest",
		Columns: output.Columns("repo", "tags", output.Text("before", before), output.Text("packages", packages), "platform",
			"digest"),
		Wide: output.Columns("repoUid", "origin"),
	}
}

func findingsImages(a *noun.App) *cobra.Command {
	var p noun.Paging
	var group string
	cmd := &cobra.Command{
		Use: "images ADVISORY", Short: "List the images that an advisory affects, last inspected first",
		Long: "The argument is the id of an advisory or one of its aliases, such as a CVE. An unknown id is an error, and\n" +
			"so is an id for which no advisory says which packages it affects.",
		Example: "  holdfast findings images CVE-2026-1234 --group acme/platform",
		Args:    cobra.ExactArgs(1),
	}
	p.Register(cmd)
	a.RegisterRef(cmd, &group, "group", noun.Groups(), "only images in `GROUP` and below it")
	cmd.RunE = a.Ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
		req := &findingspb.ListAffectedImagesRequest{AdvisoryId: args[0]}
		if err := ResolveGroup(ctx, a, group, &req.GroupUid); err != nil {
			return err
		}
		return printImages(ctx, a, req, p)
	})
	return cmd
}

func packagesSearch(a *noun.App) *cobra.Command {
	var p noun.Paging
	var group string
	req := &findingspb.SearchPackagesRequest{}
	cmd := &cobra.Command{
		Use: "search PURL", Short: "List the images that contain a package, regardless of advisories",
		Long: "The argument is a package URL, with or without a version. A package that a distribution has built from a\n" +
			"source package is also found by the name of the source package.",
		Example: "  holdfast packages search pkg:npm/lodash --range '<4.17.21'\n" +
			"  holdfast packages search pkg:deb/debian/openssl --group acme/platform",
		Args: cobra.ExactArgs(1),
	}
	p.Register(cmd)
	cmd.Flags().StringVar(&req.Range, "range", "", "only versions in `RANGE`, such as \">=4.0.0 <4.17.21 || 5.0.0\"")
	a.RegisterRef(cmd, &group, "group", noun.Groups(), "only images in `GROUP` and below it")
	cmd.RunE = a.Ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
		req.Purl = args[0]
		if err := ResolveGroup(ctx, a, group, &req.GroupUid); err != nil {
			return err
		}
		return printImages(ctx, a, req, p)
	})
	return cmd
}

// printImages prints a list of images with packages, and what was known.
func printImages(ctx context.Context, a *noun.App, req proto.Message, p noun.Paging) error {
	answer, err := a.PrintAnswer(ctx, affectedImages(), req, p, without("images"))
	if err != nil {
		return err
	}
	sayCoverage(a, answer.(covered).GetCoverage(), "")
	return nil
}

// ResolveGroup sets uid to the UID of a group, if text is not "".
func ResolveGroup(ctx context.Context, a *noun.App, text string, uid *string) (err error) {
	if text != "" {
		*uid, err = a.Resolve(ctx, noun.Groups(), text)
	}
	return err
}
