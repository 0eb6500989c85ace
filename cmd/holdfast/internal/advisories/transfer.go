package advisories

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
)

// A document is a file to import.
type document struct {
	path, name string
	size       int64
	format     string
}

// importable are the extensions of files that are imported from folders.
var importable = []string{".json", ".jsonl", ".ndjson", ".yaml", ".yml", ".zip"}

// importPiece is the number of bytes in one message.
const importPiece = 1 << 20

func importAdvisories(a *noun.App) *cobra.Command {
	var group, format string
	cmd := &cobra.Command{
		Use: "import PATH...", Short: "Import advisories from files, archives and folders",
		Long: "Imports OSV (JSON, YAML, or a zip of them), OpenVEX, secdb, and the YAML advisories of distributions.\n" +
			"Records that the group already has are skipped, so an interrupted import can be repeated. Records that\n" +
			"cannot be imported are reported with file and reason, and the others are imported; the exit code is then\n" +
			"1.\n\n" +
			"The catalog of known exploited vulnerabilities (kev) and the probabilities of exploitation (epss) can also be\n" +
			"imported, compressed by gzip or not. Each replaces the group's list of its format.",
		Example: "  holdfast advisories import all.zip --group acme\n" +
			"  holdfast advisories import epss_scores-current.csv.gz --format epss --group acme",
		Args: cobra.MinimumNArgs(1),
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, args []string) error {
			uid, err := a.Resolve(ctx, noun.Groups(), group)
			if err != nil {
				return err
			}
			docs, err := findDocuments(args)
			if err != nil {
				return err
			}
			for i := range docs {
				docs[i].format = format
			}
			return importAll(ctx, a, uid, docs)
		}),
	}
	cmd.Flags().StringVar(&format, "format", "",
		"`FORMAT` that the files must have: kev or epss (default: detected)")
	noun.CompleteWords(cmd, "format", exploitFormats)
	a.RegisterRef(cmd, &group, "group", noun.Groups(), "`GROUP` to import into")
	problem.Must(cmd.MarkFlagRequired("group"))
	return cmd
}

// findDocuments returns the files that paths name, and the importable files in folders.
func findDocuments(paths []string) (docs []document, _ error) {
	for _, path := range paths {
		err := filepath.WalkDir(path, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			known := slices.Contains(importable, strings.ToLower(filepath.Ext(file)))
			if file != path && (strings.HasPrefix(d.Name(), ".") || !known) {
				return nil
			}
			info, err := os.Stat(file)
			if err != nil {
				return err
			}
			name := filepath.Base(file)
			if rel, err := filepath.Rel(path, file); err == nil && rel != "." {
				name = filepath.ToSlash(rel)
			}
			docs = append(docs, document{path: file, name: name, size: info.Size()})
			return nil
		})
		if err != nil {
			return nil, problem.Usage("%v", err)
		}
	}
	if len(docs) == 0 {
		return nil, problem.Usage("there is nothing to import in %s", strings.Join(paths, ", "))
	}
	return docs, nil
}

// importAll sends documents and shows the server's progress.
func importAll(ctx context.Context, a *noun.App, group string, docs []document) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := advisoriespb.NewAdvisoryWritingServiceClient(a).ImportAdvisories(ctx)
	if err != nil {
		return signin.Refused(err, nil)
	}
	var total int64
	for _, d := range docs {
		total += d.size
	}
	sent := make(chan error, 1)
	go func() {
		err := send(stream, group, docs)
		if err != nil {
			cancel()
		}
		sent <- err
	}()
	bar := newProgress(a.Console, total)
	counts := &advisoriespb.ImportCounts{}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			bar.clear()
			return importFailed(<-sent, err, counts)
		}
		counts = m.GetCounts()
		for _, p := range m.GetProblems() {
			bar.clear()
			a.Note("%s: %s", p.GetName(), p.GetReason())
		}
		bar.show(m.GetBytes(), counts.GetCreated()+counts.GetUpdated()+counts.GetUnchanged()+counts.GetFailed()+
			counts.GetOlder())
	}
	bar.end()
	took := time.Since(bar.start)
	fmt.Fprintf(a.Out, "%s in %s (%s records a second)\n", countsText(counts), took.Round(time.Millisecond),
		perSecond(bar.records, took))
	if n := counts.GetFailed(); n > 0 {
		return problem.New(problem.ExitError, "%d records were not imported", n)
	}
	return nil
}

// importFailed returns the reason why an import ended early, and how much was imported.
func importFailed(sending, receiving error, counts *advisoriespb.ImportCounts) error {
	p := signin.Refused(receiving, map[string]string{"parent": "--group", "document.format": "--format"})
	if sending != nil && !errors.Is(sending, io.EOF) && !errors.Is(sending, context.Canceled) {
		p = problem.Usage("%v", sending)
	}
	if counts.GetCreated()+counts.GetUpdated()+counts.GetUnchanged()+counts.GetOlder() > 0 {
		p.Hints = append(p.Hints, countsText(counts)+" before that; to continue, run it again")
	}
	return p
}

type (
	importClient  = advisoriespb.AdvisoryWritingService_ImportAdvisoriesClient
	importRequest = advisoriespb.ImportAdvisoriesRequest
)

// send sends documents. If the server has ended the stream, send returns io.EOF, and
// receiving returns the reason.
func send(stream importClient, group string, docs []document) error {
	if err := stream.Send(&importRequest{Part: &advisoriespb.ImportAdvisoriesRequest_Parent{Parent: group}}); err != nil {
		return err
	}
	buf := make([]byte, importPiece)
	for _, d := range docs {
		if err := sendDocument(stream, d, buf); err != nil {
			return err
		}
	}
	return stream.CloseSend()
}

func sendDocument(stream importClient, d document, buf []byte) (err error) {
	f, err := os.Open(d.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := stream.Send(&importRequest{Part: &advisoriespb.ImportAdvisoriesRequest_Document_{
		Document: &advisoriespb.ImportAdvisoriesRequest_Document{Name: d.name, Size: d.size, Format: d.format},
	}}); err != nil {
		return err
	}
	for left := d.size; left > 0; {
		n, err := io.ReadFull(f, buf[:min(left, importPiece)])
		if err != nil {
			return fmt.Errorf("%s changed while it was read", d.path)
		}
		if err := stream.Send(&importRequest{Part: &advisoriespb.ImportAdvisoriesRequest_Data{Data: buf[:n]}}); err != nil {
			return err
		}
		left -= int64(n)
	}
	return nil
}

func exportAdvisories(a *noun.App) *cobra.Command {
	var format, file string
	var zip bool
	cmd := &cobra.Command{
		Use: "export", Short: "Export advisories as OSV, OpenVEX or secdb",
		Long: "Writes the advisories that match the filters as osv (a stream of JSON documents, or a zip of files),\n" +
			"openvex or secdb.",
		Example: "  holdfast advisories export --format osv --zip --file advisories.zip --parent acme --recursive",
		Args:    cobra.NoArgs,
		RunE: a.Ask(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			filter := &vulnpb.ListAdvisoriesRequest{}
			if err := a.Narrow(ctx, advisories(), cmd, filter.ProtoReflect()); err != nil {
				return err
			}
			return exportTo(ctx, a, &advisoriespb.ExportAdvisoriesRequest{Filter: filter, Format: format, Zip: zip}, file)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&format, "format", "osv", "`FORMAT`: osv, openvex or secdb")
	f.BoolVar(&zip, "zip", false, "for osv: write a zip with a file for each advisory")
	f.StringVar(&file, "file", "", "`FILE` to write to (default: standard output)")
	a.RegisterFilters(cmd, advisories())
	noun.CompleteWords(cmd, "format", []string{"osv", "openvex", "secdb"})
	return cmd
}

// exportTo writes an export to a file. It replaces the file when the export is complete.
func exportTo(ctx context.Context, a *noun.App, req *advisoriespb.ExportAdvisoriesRequest, file string) error {
	if file == "" {
		return export(ctx, a, req, a.Out)
	}
	temp, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*")
	if err != nil {
		return problem.Usage("--file: %v", err)
	}
	err = errors.Join(export(ctx, a, req, temp), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), file)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(temp.Name()))
	}
	return err
}

func export(ctx context.Context, a *noun.App, req *advisoriespb.ExportAdvisoriesRequest, w io.Writer) error {
	stream, err := advisoriespb.NewAdvisoryReadingServiceClient(a).ExportAdvisories(ctx, req)
	for err == nil {
		var m *advisoriespb.ExportAdvisoriesResponse
		if m, err = stream.Recv(); err == nil {
			if _, err := w.Write(m.GetData()); err != nil {
				return fmt.Errorf("write the export: %w", err)
			}
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return signin.Refused(err, map[string]string{"format": "--format"})
}

// A progress is a line on a terminal that shows the progress of an import. If standard
// error is not a terminal, it prints nothing.
type progress struct {
	console *output.Console
	live    bool // whether standard error is a terminal
	total   int64
	start   time.Time
	shown   time.Time
	records int64
	dirty   bool // whether the line is on the screen
}

const (
	progressWidth = 24
	progressEvery = 100 * time.Millisecond
)

func newProgress(c *output.Console, total int64) *progress {
	return &progress{console: c, live: output.IsTerminal(c.Err), total: total, start: time.Now()}
}

// show updates the line.
func (p *progress) show(bytes, records int64) {
	p.records = records
	if !p.live || time.Since(p.shown) < progressEvery && bytes < p.total {
		return
	}
	p.shown, p.dirty = time.Now(), true
	fmt.Fprintf(p.console.Err, "\r\x1b[K%s", progressLine(bytes, p.total, records, time.Since(p.start)))
}

// progressLine returns a bar, the number of records, their rate and the time left.
func progressLine(bytes, total, records int64, took time.Duration) string {
	part := 1.0
	if total > 0 {
		part = min(1, float64(bytes)/float64(total))
	}
	full := int(part * progressWidth)
	left := "?"
	if part > 0 {
		left = time.Duration(float64(took) * (1 - part) / part).Round(time.Second).String()
	}
	return fmt.Sprintf("[%s%s] %3.0f%%  %d records, %s/s, %s left", strings.Repeat("=", full),
		strings.Repeat(" ", progressWidth-full), part*100, records, perSecond(records, took), left)
}

func perSecond(n int64, took time.Duration) string {
	if took <= 0 {
		return "0"
	}
	return fmt.Sprintf("%.0f", float64(n)/took.Seconds())
}

// end shows the line at 100%, because skipped records have no bytes. A short import shows
// no line.
func (p *progress) end() {
	if p.live && p.shown.IsZero() {
		return
	}
	p.shown = time.Time{}
	p.show(p.total, p.records)
	if p.dirty {
		fmt.Fprintln(p.console.Err)
		p.dirty = false
	}
}

// clear removes the line.
func (p *progress) clear() {
	if p.dirty {
		fmt.Fprint(p.console.Err, "\r\x1b[K")
		p.dirty = false
	}
}
