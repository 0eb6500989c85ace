package registry

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// exceptions returns the Noun for exceptions, which accept findings.
func exceptions() noun.Noun {
	about := func(e *findingspb.Exception) string { return strings.TrimSpace(e.GetAdvisoryId() + " " + e.GetPurl()) }
	matching := func(e *findingspb.Exception) string {
		switch m := e.GetMatching(); {
		case m == nil:
			return ""
		case m.GetFindings() == 0:
			return "nothing"
		default:
			return fmt.Sprintf("%d in %s", m.GetFindings(), noun.Count(m.GetImages(), "image"))
		}
	}
	part := func(e *findingspb.Exception) string { return cmp.Or(e.GetTagPattern(), e.GetDigest()) }
	return noun.Noun{
		Area: "findings", Use: "exceptions", One: "exception", Message: noun.MessageOf(&findingspb.Exception{}),
		Columns: output.Columns(output.Text("about", about), output.PathOf("on", "targetUid"), output.Text("only", part),
			"state", "expireTime", output.Text("matches", matching), "reason", "uid"),
		Wide: output.Columns("justification", "authorUid", "createTime", "approverUid", "approveTime"),
	}
}

func exceptionsCommand(a *noun.App) *cobra.Command {
	n := exceptions()
	cmd := a.Branch("exceptions", "Accept findings, for a time and with a reason", exceptionsCreate(a), exceptionsList(a),
		exceptionsApprove(a), a.DeleteCommand(n), exceptionsImport(a))
	cmd.Long = "An exception accepts a finding, with a reason, on a group, a repo or some of its images, and\n" +
		"optionally until a time. It takes effect when somebody with advisories.approve on its group has approved it."
	return cmd
}

func exceptionsCreate(a *noun.App) *cobra.Command {
	var group, on, until, reason, purl, justification string
	cmd := &cobra.Command{
		Use: "create [ADVISORY] --on GROUP|REPO[:TAG|@DIGEST] --reason TEXT", Short: "Accept findings",
		Long: "Accepts the findings of an advisory, such as a CVE, or of a package, on a group, a repo, or some images\n" +
			"of a repo: images whose tags all match TAG, which may be a pattern, or the image with a digest. With\n" +
			"--dry-run it shows how many findings that would be.",
		Example: "  holdfast findings exceptions create CVE-2026-1234 --on acme/platform/app:1.2.* --until 30d \\\n" +
			"    --reason 'the affected function is not called'",
		Args: cobra.MaximumNArgs(1),
	}
	f := cmd.Flags()
	f.StringVar(&on, "on", "", "`GROUP`, REPO, REPO:TAG or REPO@DIGEST that the exception applies to (default: its group)")
	f.StringVar(&until, "until", "", "a `TIME`, or a duration such as 30d, after which it has no effect")
	f.StringVar(&reason, "reason", "", "`TEXT` with the reason")
	f.StringVar(&purl, "package", "", "only findings of the package with `PURL`, with or without a version")
	f.StringVar(&justification, "justification", "", "`WORD` of OpenVEX, such as vulnerable-code-not-present")
	noun.CompleteWords(cmd, "justification", output.EnumWords(findingspb.Justification(0).Descriptor()))
	a.RegisterRef(cmd, &group, "group", noun.Groups(), "`GROUP` to create it in (default: the group of --on)")
	noun.AddDryRun(cmd)
	cmd.RunE = a.Ask(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		e := &findingspb.Exception{Purl: purl, Reason: reason}
		if len(args) > 0 {
			e.AdvisoryId = args[0]
		}
		req := &findingspb.CreateExceptionRequest{Exception: e}
		if err := placeException(ctx, a, on, group, req); err != nil {
			return err
		}
		var err error
		if e.ExpireTime, err = noun.ParseUntil("until", until); err != nil {
			return err
		}
		if justification != "" {
			n, err := noun.ParseEnum(findingspb.Justification(0).Descriptor(), justification)
			if err != nil {
				return problem.Usage("--justification: %v", err)
			}
			e.Justification = findingspb.Justification(n)
		}
		return writeException(ctx, a, cmd, req)
	})
	return cmd
}

// writeException creates an exception and shows it.
func writeException(
	ctx context.Context, a *noun.App, cmd *cobra.Command, req *findingspb.CreateExceptionRequest,
) error {
	flags := map[string]string{"advisory_id": "ADVISORY", "purl": "--package", "reason": "--reason",
		"expire_time": "--until", "target_uid": "--on", "tag_pattern": "--on", "digest": "--on", "parent": "--group"}
	m, err := a.Write(ctx, cmd, exceptions().Method("Create"), req.ProtoReflect(), flags)
	if err != nil {
		return err
	}
	if e := m.Interface().(*findingspb.Exception); e.GetState() == findingspb.ExceptionState_EXCEPTION_STATE_PROPOSED {
		a.Note("it takes effect when somebody with advisories.approve on its group has approved it")
	}
	return a.Show(ctx, exceptions().View(), m.Interface())
}

// placeException sets the parent group and the target of an exception.
func placeException(
	ctx context.Context, a *noun.App, on, group string, req *findingspb.CreateExceptionRequest,
) (err error) {
	if err := ResolveGroup(ctx, a, group, &req.Parent); err != nil {
		return err
	}
	if on == "" {
		if req.Parent == "" {
			return problem.Usage("--on or --group is needed")
		}
		return nil
	}
	e := req.GetException()
	last := on[strings.LastIndexByte(on, '/')+1:]
	if !strings.ContainsAny(last, ":@") {
		if e.TargetUid, err = a.Resolve(ctx, noun.Groups(), on); err == nil {
			req.Parent = cmp.Or(req.Parent, e.TargetUid)
			return nil
		}
	}
	ref, err := parseImage(ctx, a, on)
	if err != nil {
		return err
	}
	e.TargetUid, e.TagPattern, e.Digest = ref.repo, ref.tag, ref.digest
	req.Parent = cmp.Or(req.Parent, ref.repo[:strings.LastIndexByte(ref.repo, '/')])
	return nil
}

func exceptionsList(a *noun.App) *cobra.Command {
	var p noun.Paging
	var group string
	cmd := &cobra.Command{
		Use: "list", Short: "List exceptions, with the number of findings that each matches", Aliases: []string{"ls"},
		Example: "  holdfast findings exceptions list --group acme/platform", Args: cobra.NoArgs,
	}
	p.Register(cmd)
	a.RegisterRef(cmd, &group, "group", noun.Groups(), "only exceptions in `GROUP` and its subgroups")
	cmd.RunE = a.Ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
		req := &findingspb.ListExceptionsRequest{CountMatching: true}
		var uid string
		if err := ResolveGroup(ctx, a, group, &uid); err != nil {
			return err
		}
		if uid != "" {
			noun.Put(req.ProtoReflect(), "uidp.descendants_of", uid)
		}
		answer, err := a.PrintAnswer(ctx, exceptions(), req, p, func(proto.Message) string { return "no exceptions" })
		if err != nil {
			return err
		}
		if c := answer.(covered).GetCoverage(); c.GetExtent() == findingspb.AnswerCoverage_EXTENT_NOTHING {
			a.Note("nothing is known that exceptions could match: %s", whyUnknown(c))
		}
		sayCoverage(a, answer.(covered).GetCoverage(), "")
		return nil
	})
	return cmd
}

func exceptionsApprove(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "approve UID...", Short: "Approve exceptions, so that they take effect",
		Example: "  holdfast findings exceptions approve 41c2bd7f0f6a2c11…/5f3c…", Args: cobra.MinimumNArgs(1),
	}
	noun.AddDryRun(cmd)
	cmd.RunE = a.Ask(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		dry, _ := cmd.Flags().GetBool("dry-run")
		approve := findingspb.NewExceptionsServiceClient(a).ApproveException
		for _, uid := range args {
			if _, err := signin.Call(ctx, approve, &findingspb.ApproveExceptionRequest{Uid: uid, ValidateOnly: dry},
				"uid=UID"); err != nil {
				return err
			}
			if dry {
				a.Note("dry run: nothing was changed")
				continue
			}
			a.Note("approved exception %s", uid)
		}
		return nil
	})
	return cmd
}

// importedStatements returns the View for a document's statements.
func importedStatements() output.View {
	made := func(st *findingspb.ImportedStatement) string { return fmt.Sprint(len(st.GetExceptions())) }
	return output.View{
		Plural: "statements", ID: "advisoryId",
		Columns: output.Columns("number", "advisory=advisoryId", "status", output.Text("exceptions", made), "problems"),
		Wide:    output.Columns("author", "documentDigest"),
	}
}

func exceptionsImport(a *noun.App) *cobra.Command {
	var group, from, until string
	req := &findingspb.ImportVexRequest{}
	cmd := &cobra.Command{
		Use: "import [FILE] --group GROUP", Short: "Create exceptions from an OpenVEX document",
		Long: "Creates exceptions from the statements not_affected and fixed of an OpenVEX document, or of the\n" +
			"documents attached to the image of --attached-to. Anyone who may push to the repo can attach documents:\n" +
			"inspect them with --dry-run first.",
		Example: "  holdfast findings exceptions import vex.json --group acme/platform\n" +
			"  holdfast findings exceptions import --attached-to acme/platform/app:1.2 --group acme --dry-run",
		Args: cobra.MaximumNArgs(1),
	}
	a.RegisterRef(cmd, &group, "group", noun.Groups(), "`GROUP` to create them in")
	a.RegisterRef(cmd, &from, "attached-to", Repos(), "read the documents that are attached to `IMAGE`")
	cmd.Flags().StringVar(&until, "until", "", "a `TIME`, or a duration such as 30d, after which they have no effect")
	cmd.Flags().StringVar(&req.Architecture, "architecture", "",
		"`ARCHITECTURE` of an image with several (default: amd64)")
	noun.AddDryRun(cmd)
	cmd.RunE = a.Ask(func(ctx context.Context, cmd *cobra.Command, args []string) (err error) {
		if (from == "") == (len(args) == 0) {
			return problem.Usage("either FILE or --attached-to is needed")
		}
		if group == "" {
			return problem.Usage("--group is needed")
		}
		if err := ResolveGroup(ctx, a, group, &req.Parent); err != nil {
			return err
		}
		if req.ExpireTime, err = noun.ParseUntil("until", until); err != nil {
			return err
		}
		if from != "" {
			ref, err := parseImage(ctx, a, from)
			if err != nil {
				return err
			}
			req.RepoUid, req.Reference = ref.repo, cmp.Or(ref.digest, ref.tag, "latest")
		} else {
			text, err := a.ReadText(args[0])
			if err != nil {
				return err
			}
			req.Document = []byte(text)
		}
		req.ValidateOnly, _ = cmd.Flags().GetBool("dry-run")
		m, err := signin.Call(ctx, findingspb.NewVexServiceClient(a).ImportVex, req, "document=FILE", "expire_time=--until",
			"repo_uid=--attached-to", "reference=--attached-to", "parent=--group")
		if err != nil {
			return err
		}
		if req.GetValidateOnly() {
			a.Note("dry run: nothing was changed")
		}
		a.Note("%s", noun.Count(m.GetCreated(), "exception"))
		return noun.ShowAnswer(ctx, a, importedStatements(), m, m.GetStatements(), nil)
	})
	return cmd
}

func findingsExport(a *noun.App) *cobra.Command {
	var vex bool
	req := &findingspb.ExportVexRequest{}
	cmd := &cobra.Command{
		Use: "export --vex REPO:TAG|REPO@DIGEST", Short: "Write the findings of an image as an OpenVEX document",
		Long: "Writes an OpenVEX document. Findings with an exception have the status not_affected, and all others the\n" +
			"status affected.",
		Example: "  holdfast findings export --vex acme/platform/app:1.2 > vex.json",
	}
	cmd.Flags().BoolVar(&vex, "vex", false, "write an OpenVEX document, the only format so far")
	cmd.Flags().StringVar(&req.Architecture, "architecture", "",
		"`ARCHITECTURE` of an image with several (default: amd64)")
	return aboutImage(a, cmd, func(ctx context.Context, at image) error {
		if !vex {
			return problem.Usage("--vex is needed")
		}
		req.RepoUid, req.Reference = at.repo, cmp.Or(at.digest, at.tag, "latest")
		m, err := signin.Call(ctx, findingspb.NewVexServiceClient(a).ExportVex, req, "reference=IMAGE", "repo_uid=REPO")
		if err != nil {
			return err
		}
		if _, err = fmt.Fprintln(a.Out, string(m.GetDocument())); err != nil {
			return err
		}
		if c := m.GetCoverage(); c.GetExtent() == findingspb.AnswerCoverage_EXTENT_NOTHING {
			a.Note("nothing is known: %s", whyUnknown(c))
		}
		sayCoverage(a, m.GetCoverage(), "")
		return nil
	})
}
