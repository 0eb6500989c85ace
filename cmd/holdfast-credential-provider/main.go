// Command holdfast-credential-provider gives the kubelet of a Kubernetes node the credentials of a pod for images in
// Holdfast. The kubelet runs it with the token of the pod's service account. See docs/kubernetes.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/holdfast-dev/holdfast/internal/platform/buildinfo"
)

func main() {
	err := run(context.Background(), os.Args[1:], os.Getenv, os.Stdin, os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdfast-credential-provider:", err)
		os.Exit(1)
	}
}

// maxRequest is the maximum size of a request, in bytes. Tokens of service accounts have about 1 KiB.
const maxRequest = 1 << 20

// run answers the request that it reads from in.
func run(ctx context.Context, args []string, getenv func(string) string, in io.Reader, out io.Writer) error {
	p := provider{}
	flags := flag.NewFlagSet("holdfast-credential-provider", flag.ContinueOnError)
	flags.StringVar(&p.server, "server", getenv("HOLDFAST_SERVER"), "`address` of Holdfast, for example "+
		"https://holdfast.example.com; the default is HOLDFAST_SERVER")
	flags.StringVar(&p.registry, "registry", getenv("HOLDFAST_REGISTRY"), "`host` in the names of images, if it differs "+
		"from the host of the server; the default is HOLDFAST_REGISTRY")
	flags.StringVar(&p.ca, "ca", getenv("HOLDFAST_CA"), "`file` with certificate authorities, in PEM; the default "+
		"is HOLDFAST_CA")
	flags.DurationVar(&p.timeout, "timeout", time.Second, "time limit for the answer of the server")
	version := flags.Bool("version", false, "print the version")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *version {
		_, err := fmt.Fprintln(out, buildinfo.Version())
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: the request is read from the standard input", flags.Arg(0))
	}
	text, err := io.ReadAll(io.LimitReader(in, maxRequest+1))
	if err != nil {
		return err
	}
	if len(text) > maxRequest {
		return errors.New("the request of the kubelet is too large")
	}
	q, err := parseRequest(text)
	if err != nil {
		return err
	}
	answer, err := p.answer(ctx, q)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(answer)
}
