package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/runner/uploads"
)

const picturesHelp = `Every request carries all pictures so far. --pictures says how:
  inline   in the request itself, each time
  upload   by reference: each is uploaded once, and deleted at the end of the run
  auto     inline as long as they come to no more than half a megabyte, then by reference; and inline
           when they cannot be uploaded (default)
What could not be deleted is deleted by the next run, or by "deskagent pictures clean", and by the API
after a day. A run with --ledger that has not come to its end keeps its pictures for that day, as
"deskagent resume" needs them.`

// picturesFile in the folder of a ledger is the list of the pictures that the run has uploaded.
const picturesFile = "pictures" + uploads.Suffix

// picturesFlag is auto, inline or upload.
type picturesFlag string

const (
	picturesAuto   picturesFlag = "auto"
	picturesInline picturesFlag = "inline"
	picturesUpload picturesFlag = "upload"
)

func (f *picturesFlag) String() string { return string(cmp.Or(*f, picturesAuto)) }

func (f *picturesFlag) Type() string { return "HOW" }

func (f *picturesFlag) Set(s string) error {
	switch v := picturesFlag(s); v {
	case picturesAuto, picturesInline, picturesUpload:
		*f = v
		return nil
	}
	return errors.New("want auto, inline or upload")
}

const picturesCommandHelp = `Deletes pictures that runs have uploaded and not deleted: runs that were killed, or that could not reach
the API at their end. It leaves alone what a run that is going on has uploaded, and what was uploaded
with another key or at another address. With DIR, it deletes the pictures of the run with the ledger DIR,
which cannot be resumed then.`

const picturesExample = `  deskagent pictures clean
  deskagent pictures clean run1`

func newPictures(c *command) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "pictures",
		Short:   "Delete uploaded pictures that are left",
		Long:    picturesCommandHelp,
		Example: picturesExample,
		Args:    usage(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var base string
	clean := &cobra.Command{
		Use:     "clean [DIR]",
		Short:   "Delete uploaded pictures that are left",
		Long:    picturesCommandHelp,
		Example: picturesExample,
		Args:    usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			folder, err := picturesFolder()
			if len(args) == 1 {
				folder, err = args[0], nil
			}
			if err != nil {
				return err
			}
			client, err := newClient(base)
			if err != nil {
				return err
			}
			n, err := uploads.Clean(cmd.Context(), client, folder, &uploads.Options{Account: account(base)})
			fmt.Fprintf(c.out, "%d pictures deleted\n", n)
			if errors.Is(err, uploads.ErrUnsettled) {
				err = hintError{err, "a minute later it can be told"}
			}
			return err
		},
	}
	clean.Flags().StringVar(&base, "base-url", "", "address of the API (default that of OpenAI, or $OPENAI_BASE_URL)")
	cmd.AddCommand(clean)
	return cmd
}

// picturesFolder holds the lists of what runs without a ledger have uploaded. It is in the folder for state of the XDG
// Base Directory Specification, where a path that is not absolute counts for nothing.
func picturesFolder() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("finding a place for the list of uploaded pictures: %w", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "deskagent", "pictures"), nil
}

// account stands for all that says whose files those of a client are. It is a digest, as a key is among that.
func account(base string) string {
	parts := []string{cmp.Or(base, os.Getenv("OPENAI_BASE_URL")), os.Getenv("OPENAI_ORG_ID"), os.Getenv("OPENAI_PROJECT_ID"), os.Getenv(keyVariable)}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:8])
}

// uploadPictures has the pictures of a session uploaded, if the flags say so, and deletes what earlier runs have left. The
// function it returns is to be called when the run is over, with how it ended. What goes wrong with deleting is told,
// but the run is not to blame.
func (r *runTask) uploadPictures(ctx context.Context, s *session) (end func(error), err error) {
	u, err := r.openUploads(ctx, s)
	switch {
	case err != nil && r.pictures == picturesUpload:
		return nil, err
	case err != nil:
		fmt.Fprintln(r.err, "pictures go inline:", oneLine(err.Error()))
		return func(error) {}, nil
	case u == nil:
		return func(error) {}, nil
	}
	if r.pictures != picturesInline {
		inline, err := r.encoding.Presenter()
		if err != nil {
			return nil, err
		}
		s.tools.Present = u.Present(inline)
	}
	return func(ended error) {
		if ended != nil && s.ledger != "" {
			r.tellLeft(u.Keep(), s.ledger)
			return
		}
		r.tellLeft(u.Close(), s.ledger)
	}, nil
}

// openUploads deletes what earlier runs have left, and returns the uploads of this one: nil when there are to be none. A
// run that is resumed has those of before, in any case.
func (r *runTask) openUploads(ctx context.Context, s *session) (*uploads.Uploads, error) {
	folder, err := picturesFolder()
	if err != nil {
		return nil, err
	}
	// A client of its own: why a file could not be deleted is not why the run ended.
	client, err := newClient(r.baseURL)
	if err != nil {
		return nil, err
	}
	opts := &uploads.Options{Account: account(r.baseURL), Auto: r.pictures.String() == string(picturesAuto), Logger: warnings(r.err)}
	if r.verbose {
		opts.Logger = r.logger()
	}
	n, err := uploads.Clean(ctx, client, folder, opts)
	if n > 0 {
		fmt.Fprintf(r.err, "deleted %d pictures that earlier runs had uploaded\n", n)
	}
	if !errors.Is(err, uploads.ErrUnsettled) { // which the next run settles
		r.tellLeft(err, "")
	}
	path := uploads.ListIn(folder)
	if s.ledger != "" {
		path = filepath.Join(s.ledger, picturesFile)
	}
	if _, err := os.Stat(path); r.pictures == picturesInline && errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return uploads.Open(client, path, opts)
}

// tellLeft tells of pictures that may still be there; ledger is the folder of the run's ledger, if it has one.
func (r *runTask) tellLeft(err error, ledger string) {
	if err != nil {
		fmt.Fprintf(r.err, "%s\n  \"deskagent pictures clean", oneLine(err.Error()))
		if ledger != "" {
			fmt.Fprintf(r.err, " %s", ledger)
		}
		fmt.Fprintln(r.err, `" deletes them`)
	}
}
