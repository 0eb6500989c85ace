package registry

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
)

// signers returns the Noun for signers, whose signatures of images are trusted.
func signers() noun.Noun {
	by := func(s *ocipb.Signer) string {
		if s.GetKey() != "" {
			return "key"
		}
		return cmp.Or(s.GetSubject(), s.GetSubjectPattern()) + " of " + s.GetIssuer()
	}
	return noun.Noun{
		Area: "registry", Use: "signers", One: "signer",
		Short: "Define whose signatures of images are trusted",
		About: "A signer is a public key or an identity whose signatures of images are trusted. The signers of the\n" +
			"nearest group that has any apply. Signers alone refuse no pulls: for that, create a rule with holdfast\n" +
			"findings rules create --unsigned.",
		Example: "  holdfast registry signers create release --parent acme --key cosign.pub",
		Message: noun.MessageOf(&ocipb.Signer{}), Argument: "name",
		Fields: []noun.Field{
			noun.Description("signer"),
			{Flag: "key", File: true, Read: readPublicKey, Help: "`FILE` with a public key in PEM, such as cosign.pub"},
			{Flag: "issuer", Help: "`ISSUER` of the identity in the certificate"},
			{Flag: "subject", Help: "`SUBJECT` of the identity: an address of a person, a workflow or a workload"},
			{Flag: "subject-pattern", Help: "regular `EXPRESSION` that must match the whole subject"},
			{Flag: "trusted-root", File: true, Help: "`FILE` trusted_root.json of Sigstore (default: the server's file)"},
		},
		ByName:  true,
		Columns: output.Columns("name", output.GroupOf("group", "uid"), output.Text("by", by), "description", "uid"),
		Wide:    output.Columns("key", "createTime"),
	}
}

// readPublicKey sets a key. It refuses a private key, so that none is sent to the server.
func readPublicKey(m protoreflect.Message, texts []string) error {
	if strings.Contains(texts[0], "PRIVATE KEY-----") {
		return errors.New("this is a private key, and it was not sent; use the public key")
	}
	noun.Put(m, "key", texts[0])
	return nil
}

// imagesSignatures returns the command that lists the signatures of an image.
func imagesSignatures(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "signatures REPO:TAG|REPO@DIGEST", Short: "Verify the signatures of an image and list their signers",
		Long: "Lists the signatures of an image, and of indexes that list it, with the signer of each or the reason why\n" +
			"it is not trusted. The signers of the nearest group that has any apply.",
		Example: "  holdfast registry images signatures acme/platform/app:1.2",
	}
	return aboutImage(a, cmd, func(ctx context.Context, at image) error {
		req := &ocipb.GetSignaturesRequest{RepoUid: at.repo, Reference: cmp.Or(at.digest, at.tag, "latest")}
		found, err := signin.Call(ctx, ocipb.NewSignersServiceClient(a).GetSignatures, req, "reference=REPO:TAG",
			"repo_uid=REPO")
		if err != nil {
			return err
		}
		switch {
		case found.GetSourceUid() == "":
			a.Note("there are no signers, so no signature is trusted")
		case !found.GetVerified():
			a.Note("no trusted signer has signed it")
		}
		about := func(s *ocipb.Signature) string {
			if s.GetIndex() != "" {
				return "index " + s.GetIndex()
			}
			return "image"
		}
		who := func(s *ocipb.Signature) string {
			if s.GetSubject() == "" {
				return ""
			}
			return s.GetSubject() + " of " + s.GetIssuer()
		}
		view := output.View{
			Plural: "signatures", ID: "manifest",
			Columns: output.Columns("signer", output.Text("identity", who), output.Text("of", about), "problem", "manifest"),
			Wide:    output.Columns("signerUid"),
		}
		return noun.ShowAnswer(ctx, a, view, found, found.GetSignatures(), nil)
	})
}

// signedBy returns the signers of an image.
func signedBy(s *ocipb.ImageSummary) string { return strings.Join(s.GetSigners(), ", ") }
