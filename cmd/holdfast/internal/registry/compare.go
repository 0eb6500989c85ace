package registry

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// imageChanges returns the Noun for differences between images.
func imageChanges() noun.Noun {
	kind := func(c *findingspb.ImageChange) string {
		return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(c.GetKind().String(), "KIND_")), "_", " ")
	}
	versions := func(packages []*findingspb.Package) string {
		var texts []string
		for _, p := range packages {
			texts = append(texts, p.GetVersion())
		}
		return strings.Join(texts, ", ")
	}
	return noun.Noun{
		Area: "findings", Use: "changes", One: "change", Message: noun.MessageOf(&findingspb.ImageChange{}), ID: "name",
		Columns: output.Columns(output.Text("change", kind), "advisory=finding.advisoryId",
			output.Text("state", changeState), "package=name",
			output.Text("from", func(c *findingspb.ImageChange) string { return versions(c.GetFrom()) }),
			output.Text("to", func(c *findingspb.ImageChange) string { return versions(c.GetTo()) }), "ecosystem"),
		Wide: output.Columns("severity=finding.severity", "fixed=finding.fixedVersions", "aliases=finding.aliases"),
	}
}

// changeState returns the state of a finding, or "".
func changeState(c *findingspb.ImageChange) string {
	if c.GetFinding() == nil {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(c.GetFinding().GetState().String(), "STATE_"))
}

func findingsCompare(a *noun.App) *cobra.Command {
	var p noun.Paging
	var only []string
	req := &findingspb.CompareImagesRequest{}
	cmd := &cobra.Command{
		Use: "compare IMAGE IMAGE", Short: "Show which packages and findings differ between two images",
		Long: "Compares two images. Each is REPO:TAG, REPO@DIGEST, or REPO:TAG@TIME for the image of a tag at a time: a\n" +
			"date, a time such as 2030-01-31T12:00:00Z, or a duration before now, such as 7d. A second image that\n" +
			"starts with a colon or an @ is in the repo of the first. Findings are based on the current advisories.",
		Example: "  holdfast findings compare acme/platform/app:1.2 :1.3\n" +
			"  holdfast findings compare acme/platform/app:latest@7d :latest --only findings",
		Args: cobra.ExactArgs(2), ValidArgsFunction: a.CompleteArgs(Repos()),
	}
	p.Register(cmd)
	cmd.Flags().StringVar(&req.Architecture, "architecture", "", "`ARCHITECTURE` of images with several (default: amd64)")
	cmd.Flags().StringSliceVar(&only, "only", nil, "only these `KINDS`: findings, packages, or kinds such as finding-new")
	cmd.RunE = a.Ask(func(ctx context.Context, _ *cobra.Command, args []string) (err error) {
		if req.Kinds, err = changeKinds(only); err != nil {
			return err
		}
		from, err := parsePast(ctx, a, args[0], "")
		if err != nil {
			return err
		}
		to, err := parsePast(ctx, a, args[1], from.repo)
		if err != nil {
			return err
		}
		req.FromRepoUid, req.FromReference, req.FromTime = from.repo, cmp.Or(from.digest, from.tag, "latest"), from.at
		req.ToRepoUid, req.ToReference, req.ToTime = to.repo, cmp.Or(to.digest, to.tag, "latest"), to.at
		answer, err := a.PrintAnswer(ctx, imageChanges(), req, p, without("differences"))
		if err != nil {
			return err
		}
		sayComparison(a, answer.(*findingspb.CompareImagesResponse))
		return nil
	})
	return cmd
}

// sayComparison prints the number of differences and the coverage of both images.
func sayComparison(a *noun.App, m *findingspb.CompareImagesResponse) {
	n := m.GetCounts()
	fmt.Fprintf(a.Err, "findings: %d new, %d fixed, %d remaining; packages: %d changed, %d added, %d removed\n",
		n.GetFindingsNew(), n.GetFindingsFixed(), n.GetFindingsRemaining(), n.GetPackagesChanged(), n.GetPackagesAdded(),
		n.GetPackagesRemoved())
	for _, side := range []struct {
		name       string
		inspection *findingspb.Inspection
	}{{"from", m.GetFrom()}, {"to", m.GetTo()}} {
		c := side.inspection.GetCoverage()
		fmt.Fprintf(a.Err, "%s %s: %s\n", side.name, side.inspection.GetDigest(), packageText(c))
	}
	sayFeeds(a, m.GetCoverage())
}

// changeKinds returns the kinds of changes that the words name.
func changeKinds(words []string) (kinds []findingspb.ImageChange_Kind, _ error) {
	for _, word := range words {
		name := "KIND_" + strings.ToUpper(strings.ReplaceAll(strings.TrimSpace(word), "-", "_"))
		before := len(kinds)
		for k := findingspb.ImageChange_KIND_FINDING_NEW; k <= findingspb.ImageChange_KIND_PACKAGE_REMOVED; k++ {
			if k.String() == name || strings.HasPrefix(k.String(), strings.TrimSuffix(name, "S")+"_") {
				kinds = append(kinds, k)
			}
		}
		if len(kinds) == before {
			return nil, problem.Usage("%q is not a kind of change", word).Hint(
				"use findings, packages, finding-new, finding-fixed, finding-remaining, package-changed, package-added " +
					"or package-removed")
		}
	}
	return kinds, nil
}

// A pastImage is a reference, with the time at which to look up its tag.
type pastImage struct {
	image
	at *timestamppb.Timestamp
}

// parsePast parses the reference of an image, or of a tag at a time. A text that starts
// with a colon or an @ is a tag or digest in repo.
func parsePast(ctx context.Context, a *noun.App, text, repo string) (at pastImage, err error) {
	rest := text
	if i := strings.LastIndexByte(text, '@'); i >= 0 && !strings.Contains(text[i:], ":") ||
		i >= 0 && strings.Contains(text[i:], "T") {
		t, err := noun.ParseMoment(text[i+1:], time.Now())
		if err != nil {
			return at, err
		}
		rest, at.at = text[:i], timestamppb.New(t)
	}
	switch {
	case repo != "" && strings.HasPrefix(rest, ":"):
		at.image = image{repo: repo, tag: rest[1:]}
	case repo != "" && strings.HasPrefix(rest, "@"):
		at.image = image{repo: repo, digest: rest[1:]}
	default:
		at.image, err = parseImage(ctx, a, rest)
	}
	return at, err
}
