package main

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"os"

	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/scaling"
)

const screenshotHelp = `Takes a picture of the screen and writes it as PNG. --crop takes a part of the screen,
--size scales the result; both work just as they do for the pictures that a model sees.`

const screenshotExample = `  deskagent screenshot -o screen.png
  deskagent screenshot -o - --size 1280x720 | feh -
  deskagent screenshot -o part.png --crop 300,200,800,600`

func newScreenshot(c *command) *cobra.Command {
	var view scaling.View
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
			d, err := c.open(cmd.Context(), hands{})
			if err != nil {
				return err
			}
			defer d.Close()
			data, err := takePicture(cmd, d, view)
			if err != nil {
				return err
			}
			return c.write(file, data)
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "file to write, - for standard output")
	viewFlags(cmd, &view)
	return cmd
}

func takePicture(cmd *cobra.Command, d *x11.Driver, view scaling.View) ([]byte, error) {
	frame, err := d.Screenshot(cmd.Context())
	if err != nil {
		return nil, err
	}
	mapping, err := view.Mapping(frame.Image.Bounds())
	if err != nil {
		return nil, usageError{err}
	}
	picture, err := mapping.Picture(frame.Image)
	if err != nil {
		return nil, err
	}
	return encodePNG(picture)
}

func encodePNG(picture image.Image) ([]byte, error) {
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&b, picture); err != nil {
		return nil, fmt.Errorf("encoding a picture of %v as PNG: %w", picture.Bounds().Size(), err)
	}
	return b.Bytes(), nil
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
