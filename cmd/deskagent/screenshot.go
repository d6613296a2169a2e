package main

import (
	"image"
	"os"

	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/internal/encode"
)

const screenshotHelp = `Takes a picture of the screen and writes it as PNG, or as JPEG to a file whose name ends in .jpg.
--crop takes a part of the screen, --size scales the result; all works just as it does for the
pictures that a model sees, but that nothing is made smaller unasked.

` + eyesHelp

const screenshotExample = `  deskagent screenshot -o screen.png
  deskagent screenshot -o - --size 1280x720 | feh -
  deskagent screenshot -o part.png --crop 300,200,800,600
  deskagent screenshot -o window.jpg --focus window --mask KeePass`

func newScreenshot(c *command) *cobra.Command {
	var e eyes
	var file string
	cmd := &cobra.Command{
		Use:     "screenshot -o FILE",
		Short:   "Take a picture of the screen",
		Long:    screenshotHelp,
		Example: screenshotExample,
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usagef("-o FILE is missing (- is standard output)")
			}
			if err := e.resolve(); err != nil {
				return err
			}
			d, err := c.open(cmd.Context(), hands{}, e.sight)
			if err != nil {
				return err
			}
			defer d.Close()
			frame, err := d.View(cmd.Context(), e.choose)
			if err != nil {
				return err
			}
			picture, err := frame.Pixels()
			if err != nil {
				return err
			}
			return c.writePicture(file, picture)
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "file to write, - for standard output")
	eyesFlags(cmd, &e)
	remoteFlag(cmd, c)
	cmd.Flags().Lookup("size").Usage = "size of the picture (default that of the part shown)"
	return cmd
}

// writePicture writes a picture in the format that the name of the file says.
func (c *command) writePicture(file string, picture *image.RGBA) error {
	data, err := encode.AppendPNG(nil, picture)
	if isJPEG(file) {
		data, err = encode.AppendJPEG(nil, picture, encode.DefaultQuality)
	}
	if err != nil {
		return err
	}
	return c.write(file, data)
}

// write writes a whole file, or standard output for "-". A picture of a screen is nobody else's business, so the
// file is private.
func (c *command) write(file string, data []byte) error {
	if file == "-" {
		_, err := c.out.Write(data)
		return err
	}
	return os.WriteFile(file, data, 0o600)
}
