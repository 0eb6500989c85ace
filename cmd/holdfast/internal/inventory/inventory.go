// Package inventory is the part of the command about images that run.
package inventory

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/inventory/running"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/registry"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// Command returns the commands about running images.
func Command(a *noun.App) *cobra.Command {
	return a.Branch("inventory", "Record and list which images run where", push(a), list(a),
		listPlaces(a), listViolations(a), remove(a))
}

// places returns the Noun for places, such as clusters and machines, where images run.
func places() noun.Noun {
	return noun.Noun{
		Area: "inventory", Use: "places", One: "place", Message: noun.MessageOf(&findingspb.InventoryPlace{}), ID: "name",
		Columns: output.Columns("name", output.NameOf("group", "groupUid"), "entries", "unknown", "pushTime",
			output.NameOf("by", "identityUid"), "expired"),
		Wide: output.Columns("expireTime", "groupUid", "identityUid"),
	}
}

// runningImages returns the Noun for images that run.
func runningImages() noun.Noun {
	return noun.Noun{
		Area: "inventory", Use: "images", One: "image", Message: noun.MessageOf(&findingspb.RunningImage{}),
		ID: "entry.digest",
		Columns: output.Columns("place", "namespace=entry.namespace", "workload=entry.workload", "container=entry.container",
			"image=entry.image", "digest=entry.digest", "copies=entry.copies"),
		Wide: output.Columns("started=entry.startTime", "platform=entry.platform", "pushTime",
			output.NameOf("by", "identityUid"), "groupUid"),
	}
}

// maxInventory is the number of entries that the server accepts for a place.
const maxInventory = 10_000

func push(a *noun.App) *cobra.Command {
	var group, place, format, ttl string
	var empty bool
	var expect int64
	cmd := &cobra.Command{
		Use: "push [FILE]", Short: "Replace the list of images that run at a place",
		Long: "Reads the output of kubectl get pods -A -o json, a compose file, or a list of digests and references,\n" +
			"one per line, from a file or standard input. Images without a digest are recorded as unknown. The list\n" +
			"is out of date after a week, or after --ttl. A list without images, or with only a part of them, is\n" +
			"refused, because the program that wrote it may have failed. Use --empty if nothing runs at the place. A\n" +
			"list with one image per line that ends after a complete line cannot be recognized as a part. Give the\n" +
			"number of its lines with --expect.",
		Example: "  kubectl get pods -A -o json | holdfast inventory push --group acme --place prod-eu\n" +
			"  docker compose config --resolve-image-digests | holdfast inventory push --group acme --place shop",
		Args: cobra.MaximumNArgs(1),
	}
	f := cmd.Flags()
	a.RegisterRef(cmd, &group, "group", noun.Groups(), "`GROUP` to record the list in")
	f.StringVar(&place, "place", "", "`NAME` of the cluster, machine or other place")
	f.StringVar(&format, "format", "", "`FORMAT`: kubernetes, compose or list (default: detected from the content)")
	f.BoolVar(&empty, "empty", false, "record that nothing runs at the place, if the list has no images")
	f.Int64Var(&expect, "expect", 0, "refuse the list unless `N` images run at the place, counting equal ones each")
	f.StringVar(&ttl, "ttl", "", "`DURATION` after which the list is out of date, such as 36h (default: 7d)")
	noun.CompleteWords(cmd, "format", running.Formats)
	noun.AddDryRun(cmd)
	problem.Must(cmd.MarkFlagRequired("group"))
	problem.Must(cmd.MarkFlagRequired("place"))
	cmd.RunE = a.Ask(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		req := &findingspb.PushInventoryRequest{Place: place}
		if ttl != "" {
			d, err := noun.ParseDuration(ttl)
			if err != nil {
				return problem.Usage("--ttl: %v", err)
			}
			req.Ttl = durationpb.New(d)
		}
		text, err := a.ReadText(strings.Join(append(args, "-")[:1], ""))
		if err != nil {
			return err
		}
		if req.Entries, err = running.Parse(format, []byte(text)); err != nil {
			return problem.Usage("%v", err)
		}
		if err := checkEntries(req, text, empty); err != nil {
			return err
		}
		if cmd.Flags().Changed("expect") {
			if err := checkCopies(req, expect); err != nil {
				return err
			}
		}
		if req.GroupUid, err = a.Resolve(ctx, noun.Groups(), group); err != nil {
			return err
		}
		return send(ctx, a, cmd, req)
	})
	return cmd
}

// checkEntries returns an error if the list has too many images, or none although empty is not set.
func checkEntries(req *findingspb.PushInventoryRequest, text string, empty bool) error {
	n := len(req.GetEntries())
	req.Empty = empty && n == 0
	switch {
	case n > maxInventory:
		return problem.Usage("%d different images run at this place, and a place can have at most %d", n, maxInventory).
			Hint("record several places, for example one for each namespace")
	case n == 0 && !empty && text == "":
		return problem.Usage("the input is empty, so the inventory is not changed").
			Hint("check the program that writes the list", "use --empty if nothing runs at the place")
	case n == 0 && !empty:
		return problem.Usage("the list has no running images, so the inventory is not changed").
			Hint("use --empty if nothing runs at the place")
	}
	return nil
}

// checkCopies returns an error unless the list has the expected number of images. Equal images count each.
func checkCopies(req *findingspb.PushInventoryRequest, expect int64) error {
	copies := int64(0)
	for _, e := range req.GetEntries() {
		copies += int64(e.GetCopies())
	}
	if copies == expect {
		return nil
	}
	return problem.Usage("the list has %s and not %d, so the inventory is not changed", noun.Count(copies, "image"),
		expect).
		Hint("check the program that writes the list")
}

func send(ctx context.Context, a *noun.App, cmd *cobra.Command, req *findingspb.PushInventoryRequest) error {
	flags := map[string]string{"place": "--place", "ttl": "--ttl", "empty": "--empty"}
	m, err := a.Write(ctx, cmd, method("PushInventory"), req.ProtoReflect(), flags)
	if err != nil {
		return err
	}
	p := m.Interface().(*findingspb.InventoryPlace)
	if n := p.GetUnknown(); n > 0 {
		a.Note("no digest in %d of %s", n, noun.Count(p.GetEntries(), "image"))
		for i, e := range req.GetEntries() {
			if e.GetDigest() == "" && i < 10 {
				words := fmt.Sprint(e.GetNamespace(), " ", e.GetWorkload(), " ", e.GetContainer(), " ", e.GetImage())
				a.Note("no digest: %s", strings.Join(strings.Fields(words), " "))
			}
		}
	}
	return a.Show(ctx, places().View(), p)
}

func list(a *noun.App) *cobra.Command {
	var p noun.Paging
	var group, repo string
	req := &findingspb.ListInventoryRequest{}
	cmd := &cobra.Command{
		Use: "list", Short: "List the running images that were recorded and are not out of date",
		Example: "  holdfast inventory list --group acme --repo acme/platform/app",
		Args:    cobra.NoArgs,
	}
	p.Register(cmd)
	a.RegisterRef(cmd, &group, "group", noun.Groups(), "only images recorded in `GROUP` and its subgroups")
	a.RegisterRef(cmd, &repo, "repo", registry.Repos(), "only images in `REPO`")
	cmd.Flags().StringVar(&req.Place, "place", "", "only images at the place with `NAME`")
	cmd.Flags().StringVar(&req.Digest, "digest", "", "only images with `DIGEST`")
	cmd.RunE = a.Ask(func(ctx context.Context, _ *cobra.Command, _ []string) (err error) {
		if err := registry.ResolveGroup(ctx, a, group, &req.GroupUid); err != nil {
			return err
		}
		if repo != "" {
			if req.RepoUid, err = a.Resolve(ctx, registry.Repos(), repo); err != nil {
				return err
			}
		}
		return a.PrintAll(ctx, runningImages(), req, p)
	})
	return cmd
}

func listPlaces(a *noun.App) *cobra.Command {
	var p noun.Paging
	var group string
	cmd := &cobra.Command{
		Use: "places", Short: "List the places with recorded images, and the age of each list",
		Example: "  holdfast inventory places --group acme", Args: cobra.NoArgs,
	}
	p.Register(cmd)
	a.RegisterRef(cmd, &group, "group", noun.Groups(), "only places recorded in `GROUP` and its subgroups")
	cmd.RunE = a.Ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
		req := &findingspb.ListInventoryPlacesRequest{}
		if err := registry.ResolveGroup(ctx, a, group, &req.GroupUid); err != nil {
			return err
		}
		return a.PrintAll(ctx, places(), req, p)
	})
	return cmd
}

func remove(a *noun.App) *cobra.Command {
	var group string
	cmd := &cobra.Command{
		Use: "delete PLACE", Short: "Delete the list of images at a place",
		Example: "  holdfast inventory delete prod-eu --group acme", Args: cobra.ExactArgs(1),
	}
	a.RegisterRef(cmd, &group, "group", noun.Groups(), "`GROUP` that the place is recorded in")
	noun.AddDryRun(cmd)
	problem.Must(cmd.MarkFlagRequired("group"))
	cmd.RunE = a.Ask(func(ctx context.Context, cmd *cobra.Command, args []string) (err error) {
		req := &findingspb.DeleteInventoryRequest{Place: args[0]}
		if req.GroupUid, err = a.Resolve(ctx, noun.Groups(), group); err != nil {
			return err
		}
		flags := map[string]string{"place": "PLACE"}
		if _, err := a.Write(ctx, cmd, method("DeleteInventory"), req.ProtoReflect(), flags); err != nil {
			return err
		}
		if dry, _ := cmd.Flags().GetBool("dry-run"); !dry {
			a.Note("deleted the list of images at %s", args[0])
		}
		return nil
	})
	return cmd
}
