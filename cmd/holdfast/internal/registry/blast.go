package registry

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// blastStages are the names of the stages of a blast radius, on the command line and in
// the output, in order.
var blastStages = []struct{ word, title string }{
	{"packages", "packages"}, {"images", "images"}, {"tags", "tags"}, {"running", "running"},
	{"pulled", "have pulled"}, {"can-pull", "can pull"}, {"can-push", "can push"}, {"owners", "owners"},
}

// blastItems returns the Noun for the items of a stage of a blast radius.
func blastItems() noun.Noun {
	return noun.Noun{
		Area: "findings", Use: "results", One: "result", Message: noun.MessageOf(&findingspb.BlastItem{}),
		ID: "identity.identity_uid", Columns: output.Columns(output.Text("result", blastText)),
	}
}

// blastText formats an item as one line.
func blastText(i *findingspb.BlastItem) string {
	switch {
	case i.GetPackage() != nil:
		p := i.GetPackage()
		return fmt.Sprintf("%s %s (%s) in %s", p.GetName(), p.GetVersion(), p.GetEcosystem(),
			noun.Count(i.GetImages(), "image"))
	case i.GetImage() != nil:
		return i.GetImage().GetRepo() + "@" + i.GetImage().GetDigest() + " " + strings.Join(i.GetImage().GetTags(), ", ")
	case i.GetTag() != nil:
		return i.GetTag().GetRepo() + ":" + i.GetTag().GetName()
	case i.GetRunning() != nil:
		return runningText(i.GetRunning())
	case i.GetDeployment() != nil:
		return i.GetDeployment().GetRepo() + " is deployed with " + strings.Join(i.GetDeployment().GetCharts(), ", ")
	}
	who := i.GetIdentity()
	name := cmp.Or(who.GetDisplayName(), who.GetName(), who.GetIdentityUid(), "everybody")
	switch {
	case who.GetLastPullTime() != nil && who.GetIdentityUid() == "":
		return "strangers, last at " + output.ShortTime(who.GetLastPullTime().AsTime())
	case who.GetLastPullTime() != nil:
		return name + ", last at " + output.ShortTime(who.GetLastPullTime().AsTime())
	}
	return fmt.Sprintf("%s, %s", name, noun.Count(who.GetRepos(), "repo"))
}

func runningText(r *findingspb.RunningImage) string {
	e := r.GetEntry()
	var where []string
	for _, word := range []string{r.GetPlace(), e.GetNamespace(), e.GetWorkload(), e.GetContainer()} {
		if word != "" {
			where = append(where, word)
		}
	}
	return fmt.Sprintf("%s: %s, %d running", strings.Join(where, " "), cmp.Or(e.GetImage(), e.GetDigest()), e.GetCopies())
}

func findingsBlast(a *noun.App) *cobra.Command {
	var p noun.Paging
	var group, stage string
	req := &findingspb.ListBlastStageRequest{}
	cmd := &cobra.Command{
		Use: "blast ADVISORY|PURL", Short: "Show the affected images, their users, and the people who can fix them",
		Long: "The argument is the id of an advisory, one of its aliases, such as a CVE, or a package URL. The stages\n" +
			"are: packages, images, tags, where they run, who has pulled them, who can pull them, who can push a fix,\n" +
			"and who owns the groups. Each stage has a count and says whether it is complete. --stage lists one stage\n" +
			"completely.",
		Example: "  holdfast findings blast CVE-2026-1234\n" +
			"  holdfast findings blast pkg:npm/lodash --range '<4.17.21' --group acme/platform --days 7\n" +
			"  holdfast findings blast CVE-2026-1234 --stage owners",
		Args: cobra.ExactArgs(1),
	}
	p.Register(cmd)
	a.RegisterRef(cmd, &group, "group", noun.Groups(), "only images in `GROUP` and below it")
	f := cmd.Flags()
	f.StringVar(&req.Range, "range", "", "with a package, only versions in `RANGE`, such as \">=4.0.0 <4.17.21 || 5.0.0\"")
	f.Int32Var(&req.Days, "days", 0, "count the pulls of this many `DAYS` (default: 30)")
	f.StringVar(&stage, "stage", "", "only `STAGE`: "+strings.Join(stageWords(), ", "))
	noun.CompleteWords(cmd, "stage", stageWords())
	cmd.RunE = a.Ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
		if strings.HasPrefix(args[0], "pkg:") {
			req.Purl = args[0]
		} else {
			req.AdvisoryId = args[0]
		}
		if err := ResolveGroup(ctx, a, group, &req.GroupUid); err != nil {
			return err
		}
		if stage == "" {
			return showBlast(ctx, a, req)
		}
		for i, s := range blastStages {
			if s.word == stage {
				req.Stage = findingspb.BlastStage_Name(i + 1)
				answer, err := a.PrintAnswer(ctx, blastItems(), req, p, without("results"))
				if err != nil {
					return err
				}
				sayGaps(a, answer.(*findingspb.BlastStage))
				return nil
			}
		}
		return problem.Usage("%q is not a stage", stage).Hint("use one of " + strings.Join(stageWords(), ", "))
	})
	return cmd
}

func stageWords() (words []string) {
	for _, s := range blastStages {
		words = append(words, s.word)
	}
	return words
}

// showBlast prints the first items of every stage of a blast radius.
func showBlast(ctx context.Context, a *noun.App, req *findingspb.ListBlastStageRequest) error {
	m, err := signin.Call(ctx, findingspb.NewBlastServiceClient(a).GetBlast, &findingspb.GetBlastRequest{
		AdvisoryId: req.GetAdvisoryId(), Purl: req.GetPurl(), Range: req.GetRange(), GroupUid: req.GetGroupUid(),
		Days: req.GetDays(),
	}, "advisory_id=ADVISORY", "purl=PURL", "range=--range", "days=--days")
	if err != nil {
		return err
	}
	nothing := m.GetCoverage().GetExtent() == findingspb.AnswerCoverage_EXTENT_NOTHING
	var rows []*findingspb.BlastItem
	for _, s := range m.GetStages() {
		rows = append(rows, s.GetItems()...)
	}
	return noun.ShowAnswer(ctx, a, blastItems().View(), m, rows, func() {
		for i, s := range m.GetStages() {
			said := ""
			if !s.GetComplete() {
				said = ", maybe more"
			}
			total := fmt.Sprint(s.GetTotalCount())
			if nothing && s.GetTotalCount() == 0 {
				total, said = "unknown", ""
			}
			fmt.Fprintf(a.Out, "%s %s%s\n", a.Paint(output.Bold, blastStages[i].title+":"), total, said)
			for _, item := range s.GetItems() {
				fmt.Fprintln(a.Out, "  "+output.Printable(blastText(item)))
			}
			if n := s.GetTotalCount() - int64(len(s.GetItems())); n > 0 {
				fmt.Fprintf(a.Out, "  … and %d more; see --stage %s\n", n, blastStages[i].word)
			}
			for _, g := range s.GetGaps() {
				fmt.Fprintln(a.Out, "  not complete: "+output.Printable(g.GetMessage()))
			}
		}
		if nothing {
			a.Note("nothing is known: %s", whyUnknown(m.GetCoverage()))
		}
		sayCoverage(a, m.GetCoverage(), "")
		a.Note("only groups that you can list were looked at")
	})
}

// sayGaps prints what may be missing from a stage of a blast radius.
func sayGaps(a *noun.App, stage *findingspb.BlastStage) {
	for _, g := range stage.GetGaps() {
		a.Note("not complete: %s", g.GetMessage())
	}
	sayCoverage(a, stage.GetCoverage(), "")
}
